"""Define emit, emit_many and emit_async, which insert one outbox row per event in the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import psycopg

from outbox_events.errors import ConfigurationError
from outbox_events.sending import psycopg_writer
from outbox_events.sending.event import OutboxEvent, Row
from outbox_events.sending.outbox_table import DEFAULT_TABLE, OutboxTable
from outbox_events.tracing.tracer import trace_headers

if TYPE_CHECKING:
    import sqlalchemy
    import sqlalchemy.orm

    SyncConnection = (
        psycopg.Connection[Any] | sqlalchemy.Connection | sqlalchemy.orm.Session | sqlalchemy.orm.scoped_session[Any]
    )

SYNC_HINT = "pass a psycopg 3 Connection, or a SQLAlchemy 2 Connection or Session"
ASYNC_HINT = "pass a psycopg 3 AsyncConnection"

collectors: list[list[OutboxEvent]] = []
"""Lists of tests (`outbox_events.testing.collect_events`). The last list receives the events instead of a table."""


def emit(
    connection: SyncConnection,
    *,
    aggregate_type: str,
    aggregate_id: str | UUID,
    event_type: str,
    payload: Mapping[str, Any] | None,
    headers: Mapping[str, str] | None = None,
    event_id: UUID | None = None,
    additional_columns: Mapping[str, Any] | None = None,
    table: str | OutboxTable = DEFAULT_TABLE,
) -> UUID:
    """Insert one outbox row in the open transaction, and return the event's id. Does not commit.

    `connection` is a psycopg 3 Connection, or a SQLAlchemy 2 Connection or Session. `payload` is the full state of the
    aggregate after the event. None means that the aggregate was deleted. `additional_columns` maps other columns that
    the pipeline file defines, such as partition_field, to values. Pass an OutboxTable as `table` if the pipeline file
    sets source.columns. If there is a current trace (`use_tracer`), its headers are added to `headers`.

    Before any SQL is executed, raises InvalidEventError for an event that cannot be stored exactly, RefusedError if the
    row would be committed separately, and ConfigurationError for an unsupported kind of connection. Database errors are
    raised as the driver's own errors.
    """
    event = OutboxEvent(
        aggregate_type=aggregate_type,
        aggregate_id=aggregate_id,
        event_type=event_type,
        payload=payload,
        headers=headers,
        event_id=uuid4() if event_id is None else event_id,
        additional_columns=additional_columns,
    )
    return emit_many(connection, [event], table=table)[0]


def emit_many(
    connection: SyncConnection, events: Iterable[OutboxEvent], *, table: str | OutboxTable = DEFAULT_TABLE
) -> list[UUID]:
    """Insert one outbox row per event as `emit` does, in the order of `events`. Return the events' ids.

    All events are validated before the first row is inserted. If there are no events, no statement is executed.
    """
    outbox, events = _outbox_table(table), with_trace(events)
    batches = _batches(events, outbox)
    if collectors:
        collectors[-1].extend(events)
    elif isinstance(connection, psycopg.Connection):
        for columns, rows in batches:
            psycopg_writer.insert_rows(connection, rows, outbox, columns)
    elif is_sqlalchemy(connection):
        from outbox_events.sending import sqlalchemy_writer  # noqa: PLC0415  (an optional dependency)

        for columns, rows in batches:
            sqlalchemy_writer.insert_rows(connection, rows, outbox, columns)
    else:
        raise _unsupported_error(connection)
    return [event.event_id for event in events]


async def emit_async(
    connection: psycopg.AsyncConnection[Any], *events: OutboxEvent, table: str | OutboxTable = DEFAULT_TABLE
) -> list[UUID]:
    """Insert one outbox row per event as `emit_many` does, but through psycopg's AsyncConnection.

    For SQLAlchemy's AsyncSession or AsyncConnection, use `await session.run_sync(emit_many, events)`.
    """
    outbox, traced = _outbox_table(table), with_trace(events)
    batches = _batches(traced, outbox)
    if collectors:
        collectors[-1].extend(traced)
        return [event.event_id for event in traced]
    if not isinstance(connection, psycopg.AsyncConnection):
        is_synchronous = isinstance(connection, psycopg.Connection) or is_sqlalchemy(connection)
        raise _unsupported_error(connection, "use emit or emit_many" if is_synchronous else ASYNC_HINT)
    for columns, rows in batches:
        await psycopg_writer.insert_rows_async(connection, rows, outbox, columns)
    return [event.event_id for event in traced]


def with_trace(events: Iterable[OutboxEvent]) -> list[OutboxEvent]:
    """Return the events with the headers of the current trace, which do not replace an event's own `traceparent`."""
    added, events = trace_headers(), list(events)
    if not added:
        return events
    return [
        replace(event, headers={**added, **(event.headers or {})}) if _continues_trace(event) else event
        for event in events
    ]


def _continues_trace(event: OutboxEvent) -> bool:
    """Return whether the event has no `traceparent`, neither as a header nor as a column that becomes a header."""
    headers = event.headers or {}
    return isinstance(headers, Mapping) and "traceparent" not in {*headers, *(event.additional_columns or {})}


@lru_cache(maxsize=64)
def _outbox_table(table: str | OutboxTable) -> OutboxTable:
    return OutboxTable(table) if isinstance(table, str) else table


def _batches(events: Iterable[OutboxEvent], table: OutboxTable) -> list[tuple[tuple[str, ...], list[Row]]]:
    """Split the events into runs with the same additional columns, and return the columns and rows of each run.

    A row's keys are the keys of OutboxEvent.to_row() and, for each additional column, the column's position as text.
    """
    rows = [(event.to_row(), event.additional_values(table)) for event in events]

    def parameters(row: Row, additional: Row) -> Row:
        return row | {str(position): value for position, value in enumerate(additional.values())}

    return [
        (columns, [parameters(row, additional) for row, additional in group])
        for columns, group in groupby(rows, key=lambda row: tuple(row[1]))
    ]


def is_sqlalchemy(connection: object) -> bool:
    """Check without importing SQLAlchemy whether the object is a synchronous connection or session of SQLAlchemy."""
    class_names = {cls.__name__ for cls in type(connection).__mro__ if cls.__module__.startswith("sqlalchemy.")}
    return bool(class_names & {"Connection", "Session", "scoped_session"})


def _unsupported_error(connection: object, default_hint: str = SYNC_HINT) -> ConfigurationError:
    hints = {
        "AsyncConnection": "use emit_async for psycopg, `await connection.run_sync(emit_many, events)` for SQLAlchemy",
        "AsyncSession": "use `await session.run_sync(emit_many, events)`",
        "Engine": "open a transaction first: `with engine.begin() as connection:`",
    }
    message = f"cannot write an event through {type(connection).__module__}.{type(connection).__qualname__}"
    return ConfigurationError(message, hints.get(type(connection).__name__, default_hint))
