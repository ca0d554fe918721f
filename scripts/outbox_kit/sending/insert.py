"""emit, emit_many, emit_async: insert one outbox row per event in the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import psycopg

from outbox_kit.errors import ConfigurationError
from outbox_kit.sending import psycopg_writer
from outbox_kit.sending.event import DEFAULT_TABLE, OutboxEvent, parse_table

if TYPE_CHECKING:
    import sqlalchemy
    import sqlalchemy.orm

    SyncConnection = (
        psycopg.Connection[Any] | sqlalchemy.Connection | sqlalchemy.orm.Session | sqlalchemy.orm.scoped_session[Any]
    )


def emit(
    connection: SyncConnection,
    *,
    aggregate_type: str,
    aggregate_id: str | UUID,
    event_type: str,
    payload: Mapping[str, Any] | None,
    headers: Mapping[str, str] | None = None,
    event_id: UUID | None = None,
    table: str = DEFAULT_TABLE,
) -> UUID:
    """Insert one outbox row in the open transaction; return the event's id. Never commits.

    `connection` is a psycopg 3 Connection, or a SQLAlchemy 2 Connection or Session. `payload` is
    the aggregate's whole state after the event; None means that the aggregate was deleted.

    Raises, before any SQL is executed, InvalidEventError for an event that cannot be stored exactly,
    RefusedError if the row would be committed on its own, and ConfigurationError for an unsupported
    kind of connection. Database errors are the errors of the driver.
    """
    event = OutboxEvent(
        aggregate_type=aggregate_type,
        aggregate_id=aggregate_id,
        event_type=event_type,
        payload=payload,
        headers=headers,
        event_id=uuid4() if event_id is None else event_id,
    )
    return emit_many(connection, [event], table=table)[0]


def emit_many(connection: SyncConnection, events: Iterable[OutboxEvent], *, table: str = DEFAULT_TABLE) -> list[UUID]:
    """Insert one outbox row per event, in the order of `events`, as `emit` does; return the events' ids.

    All events are validated before the first row is inserted. If there are no events, no statement is executed.
    """
    table_name = parse_table(table)
    events = list(events)
    rows = [event.to_row() for event in events]
    if isinstance(connection, psycopg.Connection):
        if rows:
            psycopg_writer.insert_rows(connection, rows, table_name)
    elif _is_sqlalchemy_connection(connection):
        from outbox_kit.sending import sqlalchemy_writer  # noqa: PLC0415  (an optional dependency)

        if rows:
            sqlalchemy_writer.insert_rows(connection, rows, table_name)
    else:
        raise _unsupported_error(connection)
    return [event.event_id for event in events]


async def emit_async(
    connection: psycopg.AsyncConnection[Any], *events: OutboxEvent, table: str = DEFAULT_TABLE
) -> list[UUID]:
    """Insert one outbox row per event like `emit_many`, through psycopg's AsyncConnection.

    For an AsyncSession or AsyncConnection of SQLAlchemy use `await session.run_sync(emit_many, events)`.
    """
    table_name = parse_table(table)
    rows = [event.to_row() for event in events]
    if not isinstance(connection, psycopg.AsyncConnection):
        raise _unsupported_error(connection)
    if rows:
        await psycopg_writer.insert_rows_async(connection, rows, table_name)
    return [event.event_id for event in events]


def _is_sqlalchemy_connection(connection: object) -> bool:
    """Return whether the object is a synchronous connection or session, without importing SQLAlchemy."""
    class_names = {cls.__name__ for cls in type(connection).__mro__ if cls.__module__.startswith("sqlalchemy.")}
    return bool(class_names & {"Connection", "Session", "scoped_session"})


def _unsupported_error(connection: object) -> ConfigurationError:
    hints = {
        "AsyncConnection": "use emit_async for psycopg, `await connection.run_sync(emit_many, events)` for SQLAlchemy",
        "AsyncSession": "use `await session.run_sync(emit_many, events)`",
        "Engine": "open a transaction first: `with engine.begin() as connection:`",
    }
    default_hint = "pass a psycopg 3 Connection, or a SQLAlchemy 2 Connection or Session"
    message = f"cannot write an event through {type(connection).__module__}.{type(connection).__qualname__}"
    return ConfigurationError(message, hints.get(type(connection).__name__, default_hint))
