"""Store the filters of partitions in a table: the hashes of each transaction, and a filter when it is full.

A transaction appends the hashes of its new events instead of writing the whole filter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from psycopg import sql

from outbox_events.receiving.partition_states import Partition
from outbox_events.receiving.strategies.database import execute

if TYPE_CHECKING:
    from outbox_events.sending.emit import SyncConnection

DEFAULT_TABLE = "public.event_filter"
APPEND = """
    insert into {table} (consumer_group, topic, partition, is_filter, content)
    select cast({group} as text), topic, partition, false, content from unnest(
        cast({topics} as text[]), cast({partitions} as integer[]), cast({contents} as bytea[]))
        as given (topic, partition, content)"""
PLACE = """
    consumer_group = cast({group} as text) and topic = cast({topic} as text)
    and partition = cast({partition} as integer)"""
LOAD = f"select is_filter, content from {{table}} where {PLACE} order by number"  # noqa: S608 - constants
REPLACE = f"""
    with deleted as (delete from {{table}} where {PLACE})
    insert into {{table}} (consumer_group, topic, partition, is_filter, content)
    values (cast({{group}} as text), cast({{topic}} as text), cast({{partition}} as integer), true,
            cast({{content}} as bytea))"""  # noqa: S608 - constants


def append(connection: SyncConnection, group: str, hashes: Mapping[Partition, bytes], table: str) -> None:
    """Append the joined hashes of new events to the filters of their partitions."""
    topics, partitions = [topic for topic, _ in hashes], [partition for _, partition in hashes]
    contents = list(hashes.values())
    execute(connection, APPEND, table, group=group, topics=topics, partitions=partitions, contents=contents)


def replace(connection: SyncConnection, group: str, source: Partition, content: bytes, table: str) -> None:
    """Replace all rows of a partition with a full filter."""
    execute(connection, REPLACE, table, group=group, topic=source[0], partition=source[1], content=content)


def load(connection: SyncConnection, group: str, source: Partition, table: str) -> tuple[bytes | None, bytes]:
    """Return the full filter of a partition, or None, and the joined hashes that were appended after it."""
    rows = execute(connection, LOAD, table, group=group, topic=source[0], partition=source[1])
    saved = next((bytes(content) for is_filter, content in rows if is_filter), None)
    return saved, b"".join(content for is_filter, content in rows if not is_filter)


def create_table_sql(table: str = DEFAULT_TABLE) -> sql.Composed:
    """Return the statement that creates the table if it does not exist."""
    return sql.SQL(
        "create table if not exists {} (number bigint generated always as identity, consumer_group text not null, "
        "topic text not null, partition integer not null, is_filter boolean not null, content bytea not null, "
        "primary key (consumer_group, topic, partition, number))"
    ).format(sql.Identifier(*table.split(".")))
