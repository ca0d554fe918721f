"""Create and read the tables of the receiving service: effects, processed events, positions and filters."""

from __future__ import annotations

from contextlib import closing
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from outbox_events import Event, filter_table, position_table, processed_table
from outbox_lab.drill.observer import Delivery, version_of

PROCESSED_EVENTS = "receiver.processed_event"
POSITIONS = "receiver.consumer_offset"
FILTERS = "receiver.event_filter"
CONNECT_TIMEOUT_S = 5
# receiver.effect has no unique constraint, because the strategy, not the table, must prevent duplicates.
CREATE: LiteralString = """
    drop schema if exists receiver cascade;
    create schema receiver;
    create table receiver.effect (
      number bigint generated always as identity, consumer_group text not null, event_id text not null,
      partition integer not null, record_offset bigint not null, version bigint, key text not null)"""
APPLY: LiteralString = """
    insert into receiver.effect (consumer_group, event_id, partition, record_offset, version, key)
    values (%s, %s, %s, %s, %s, %s)"""
EFFECTS: LiteralString = """
    select event_id, partition, record_offset, null, null, version, key from receiver.effect
    where consumer_group = %s order by number"""
NEXT_OFFSETS = sql.SQL("select partition, next_offset from {} where consumer_group = %s").format(
    sql.Identifier(*POSITIONS.split("."))
)

Connection = psycopg.Connection[Any]


def connect(dsn: str) -> Connection:
    """Connect to the database of the receiving service."""
    return psycopg.connect(dsn, connect_timeout=CONNECT_TIMEOUT_S)


def create(dsn: str) -> None:
    """Create empty tables. Drop the tables of an earlier cell."""
    with closing(connect(dsn)) as connection, connection.transaction():
        connection.execute(CREATE)
        connection.execute(processed_table.create_table_sql(PROCESSED_EVENTS))
        connection.execute(position_table.create_table_sql(POSITIONS))
        connection.execute(filter_table.create_table_sql(FILTERS))


def apply(connection: Connection, group: str, event: Event) -> None:
    """Insert the effect of an event in the open transaction."""
    version = version_of(event.raw_value)
    connection.execute(APPLY, (group, event.event_id, event.partition, event.offset, version, event.aggregate_id))


def read_effects(dsn: str, group: str) -> list[Delivery]:
    """Return the effects that a consumer group has applied, in the order of their insertion."""
    with closing(connect(dsn)) as connection:
        rows = connection.execute(EFFECTS, (group,)).fetchall()
    return [Delivery(*row) for row in rows]


def read_positions(dsn: str, group: str) -> dict[int, int]:
    """Return a mapping from each partition to the position that a consumer group has stored."""
    with closing(connect(dsn)) as connection:
        return dict(connection.execute(NEXT_OFFSETS, (group,)).fetchall())
