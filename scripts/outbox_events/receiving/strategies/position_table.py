"""Table of positions: one row per consumer group and partition, updated in the transaction of the effects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from psycopg import sql

from outbox_events.receiving.strategies.database import execute
from outbox_events.receiving.strategies.positions import Partition, StoredPosition

if TYPE_CHECKING:
    from outbox_events.receiving.strategies.database import SyncConnection

DEFAULT_TABLE = "public.consumer_offset"
INSERT = """
    insert into {table} (consumer_group, topic, partition, topic_id, next_offset)
    select cast({group} as text), * from unnest(
        cast({topics} as text[]), cast({partitions} as integer[]), cast({topic_ids} as text[]),
        cast({offsets} as bigint[])) as given (topic, partition, topic_id, next_offset)
    order by topic, partition on conflict do nothing"""
# Sorted, so that two consumers with the same partitions cannot wait for each other.
LOCK = """
    select topic, partition, topic_id, next_offset from {table}
    where consumer_group = cast({group} as text) and (topic, partition) in (
        select * from unnest(cast({topics} as text[]), cast({partitions} as integer[])))
    order by topic, partition for update"""
ADVANCE = """
    update {table} as stored set next_offset = given.next_offset, updated_at = now()
    from unnest(cast({topics} as text[]), cast({partitions} as integer[]), cast({offsets} as bigint[]))
        as given (topic, partition, next_offset)
    where stored.consumer_group = cast({group} as text)
        and stored.topic = given.topic and stored.partition = given.partition"""


def insert_missing(
    connection: SyncConnection, group: str, positions: Mapping[Partition, StoredPosition], table: str
) -> None:
    """Insert the positions of partitions that have none."""
    offsets = [position.next_offset for position in positions.values()]
    topic_ids = [position.topic_id for position in positions.values()]
    execute(connection, INSERT, table, group=group, **_columns(positions), topic_ids=topic_ids, offsets=offsets)


def lock(
    connection: SyncConnection, group: str, partitions: Iterable[Partition], table: str
) -> dict[Partition, StoredPosition]:
    """Lock and return the positions. Waits for a transaction of another consumer with one of the partitions."""
    rows = execute(connection, LOCK, table, group=group, **_columns(partitions))
    return {(topic, partition): StoredPosition(topic_id, offset) for topic, partition, topic_id, offset in rows}


def advance(connection: SyncConnection, group: str, offsets: Mapping[Partition, int], table: str) -> None:
    """Store the offsets of the next events of locked positions."""
    execute(connection, ADVANCE, table, group=group, **_columns(offsets), offsets=list(offsets.values()))


def _columns(partitions: Iterable[Partition]) -> dict[str, list[str] | list[int]]:
    listed = list(partitions)
    return {"topics": [topic for topic, _ in listed], "partitions": [partition for _, partition in listed]}


def create_table_sql(table: str = DEFAULT_TABLE) -> sql.Composed:
    """Return the statement that creates the table, if it does not exist.

    Each transaction updates few rows of a small table, so pages keep room for new versions of a row (HOT updates).
    """
    return sql.SQL(
        "create table if not exists {} (consumer_group text not null, topic text not null, "
        "partition integer not null, topic_id text not null, next_offset bigint not null check (next_offset >= 0), "
        "updated_at timestamptz not null default now(), "
        "primary key (consumer_group, topic, partition)) with (fillfactor = 50)"
    ).format(sql.Identifier(*table.split(".")))
