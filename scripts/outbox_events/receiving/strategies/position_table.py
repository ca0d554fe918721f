"""Store positions in a table with one row per consumer group and partition, in the transaction of the effects.

The functions that need no connection are also tested with random histories of a simulated broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg import sql

from outbox_events.errors import RefusedError
from outbox_events.receiving.event import Event
from outbox_events.receiving.partition_states import Partition, PartitionState, deleted_error
from outbox_events.receiving.recoverers import ReceiverStoppedError
from outbox_events.receiving.strategies.database import execute

if TYPE_CHECKING:
    from outbox_events.sending.emit import SyncConnection


@dataclass(frozen=True)
class StoredPosition:
    """Offset of the next event in a partition, and the id of the topic to which the offset belongs."""

    topic_id: str
    next_offset: int


@dataclass(frozen=True)
class Division:
    """Events divided into new events and duplicates, and the positions before and after the new events."""

    new: Sequence[Event]
    duplicates: Sequence[Event]
    before: Mapping[Partition, int]
    positions: Mapping[Partition, int]


def divide(events: Iterable[Event], positions: Mapping[Partition, int]) -> Division:
    """Divide events in delivery order. An event before its partition's stored position is a duplicate."""
    following, new, duplicates = dict(positions), list[Event](), list[Event]()
    for event in events:
        if event.offset < following[event.source]:
            duplicates.append(event)
        else:
            new.append(event)
            following[event.source] = event.offset + 1
    return Division(new, duplicates, positions, following)


def reach(
    ends: Mapping[Partition, int], known: Mapping[Partition, StoredPosition], positions: Mapping[Partition, int]
) -> Division:
    """Advance the positions to the ends of their partitions, except those that another consumer has moved."""
    reached = {source: ends[source] for source, offset in positions.items() if offset == known[source].next_offset}
    return Division((), (), positions, {**positions, **reached})


def refuse_start(source: Partition, stored: StoredPosition, actual: PartitionState, table: str) -> None:
    """Raise RefusedError if reading the partition cannot continue at the stored position."""
    place = f"topic {source[0]}, partition {source[1]}: the stored position {stored.next_offset}"
    if stored.topic_id and actual.topic_id and stored.topic_id != actual.topic_id:
        message = f"{place} belongs to topic id {stored.topic_id}, but the topic was created again as {actual.topic_id}"
        raise RefusedError(message, f"delete its row in {table} to read the new topic from its start")
    if stored.next_offset < actual.first:
        hint = f"set next_offset in {table} to {actual.first} to continue without these records"
        raise deleted_error(place, actual.first, hint)
    if stored.next_offset > actual.end:
        message = f"{place} is after the end {actual.end}: the partition lost records"
        raise RefusedError(message, f"set next_offset in {table} to the offset at which to continue")


def refuse_change(source: Partition, known: StoredPosition | None, stored: StoredPosition | None, table: str) -> None:
    """Raise ReceiverStoppedError if the stored position was changed by something other than a consumer of the group.

    `known` is the position at which this consumer started or that it stored last. If it continued at any other
    position, events in between could be skipped.
    """
    place = f"topic {source[0]}, partition {source[1]}"
    hint = "restart the receiver to continue at the stored position"
    if known is None:
        raise ReceiverStoppedError(f"{place}: the position was not verified when the partition was assigned", hint)
    if stored is None:
        raise ReceiverStoppedError(f"{place}: {table} no longer has a position", hint)
    if stored.topic_id != known.topic_id:
        message = f"{place}: the stored position belongs to topic id {stored.topic_id}, not to {known.topic_id}"
        raise ReceiverStoppedError(message, hint)
    if stored.next_offset < known.next_offset:
        message = f"{place}: the stored position was moved back from {known.next_offset} to {stored.next_offset}"
        raise ReceiverStoppedError(message, hint)


DEFAULT_TABLE = "public.consumer_offset"
INSERT = """
    insert into {table} (consumer_group, topic, partition, topic_id, next_offset)
    select cast({group} as text), * from unnest(
        cast({topics} as text[]), cast({partitions} as integer[]), cast({topic_ids} as text[]),
        cast({offsets} as bigint[])) as given (topic, partition, topic_id, next_offset)
    order by topic, partition on conflict do nothing"""
# Sorted, so that two consumers with the same partitions cannot deadlock.
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
    """Insert positions for the partitions that do not have a stored position."""
    offsets = [position.next_offset for position in positions.values()]
    topic_ids = [position.topic_id for position in positions.values()]
    execute(connection, INSERT, table, group=group, **_columns(positions), topic_ids=topic_ids, offsets=offsets)


def lock(
    connection: SyncConnection, group: str, partitions: Iterable[Partition], table: str
) -> dict[Partition, StoredPosition]:
    """Lock and return the positions. Waits for other consumers' transactions that have locked any of the positions."""
    rows = execute(connection, LOCK, table, group=group, **_columns(partitions))
    return {(topic, partition): StoredPosition(topic_id, offset) for topic, partition, topic_id, offset in rows}


def advance(connection: SyncConnection, group: str, offsets: Mapping[Partition, int], table: str) -> None:
    """Set the locked positions to the offsets of the next events."""
    execute(connection, ADVANCE, table, group=group, **_columns(offsets), offsets=list(offsets.values()))


def _columns(partitions: Iterable[Partition]) -> dict[str, list[str] | list[int]]:
    listed = list(partitions)
    return {"topics": [topic for topic, _ in listed], "partitions": [partition for _, partition in listed]}


def create_table_sql(table: str = DEFAULT_TABLE) -> sql.Composed:
    """Return the statement that creates the table if it does not exist.

    Each transaction updates a few rows of a small table, so the fillfactor leaves space for row versions (HOT updates).
    """
    return sql.SQL(
        "create table if not exists {} (consumer_group text not null, topic text not null, "
        "partition integer not null, topic_id text not null, next_offset bigint not null check (next_offset >= 0), "
        "updated_at timestamptz not null default now(), "
        "primary key (consumer_group, topic, partition)) with (fillfactor = 50)"
    ).format(sql.Identifier(*table.split(".")))
