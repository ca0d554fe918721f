"""Write events: one outbox row each, in the transaction that the caller holds and ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import psycopg

from outbox_kit.errors import ConfigurationError
from outbox_kit.sending import psycopg_writer
from outbox_kit.sending.event import OutboxEvent
from outbox_kit.sending.table import DEFAULT_TABLE, parse_table

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
    the aggregate's whole state after the event; None says that it is gone.

    Raises InvalidEventError for an event that cannot be stored exactly, RefusedError where the row
    would be committed on its own, ConfigurationError for another kind of connection: all three
    before any SQL. Errors of the database are the driver's own.
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
    """Insert one outbox row per event, in their order; return their ids. Otherwise as `emit`.

    All events are checked before the first is written. No events, no statement.
    """
    name = parse_table(table)
    events = list(events)
    rows = [event.to_row() for event in events]
    if isinstance(connection, psycopg.Connection):
        if rows:
            psycopg_writer.insert(connection, rows, name)
    elif _is_sqlalchemy(connection):
        from outbox_kit.sending import sqlalchemy_writer  # noqa: PLC0415  (an optional dependency)

        if rows:
            sqlalchemy_writer.insert_rows(connection, rows, name)
    else:
        raise _unknown(connection)
    return [event.event_id for event in events]


async def emit_async(
    connection: psycopg.AsyncConnection[Any], *events: OutboxEvent, table: str = DEFAULT_TABLE
) -> list[UUID]:
    """As `emit_many`, for psycopg's AsyncConnection.

    SQLAlchemy's AsyncSession and AsyncConnection need nothing of their own:
    `await session.run_sync(emit_many, events)`.
    """
    name = parse_table(table)
    rows = [event.to_row() for event in events]
    if not isinstance(connection, psycopg.AsyncConnection):
        raise _unknown(connection)
    if rows:
        await psycopg_writer.insert_async(connection, rows, name)
    return [event.event_id for event in events]


def _is_sqlalchemy(connection: object) -> bool:
    """Whether SQLAlchemy can be imported to look closer: its objects exist only where it is installed."""
    kinds = {base.__name__ for base in type(connection).__mro__ if base.__module__.startswith("sqlalchemy.")}
    return bool(kinds & {"Connection", "Session", "scoped_session"})


def _unknown(connection: object) -> ConfigurationError:
    kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
    hints = {
        "AsyncConnection": "use emit_async for psycopg, `await connection.run_sync(emit_many, events)` for SQLAlchemy",
        "AsyncSession": "use `await session.run_sync(emit_many, events)`",
        "Engine": "open a transaction first: `with engine.begin() as connection:`",
    }
    default = "pass a psycopg 3 Connection, or a SQLAlchemy 2 Connection or Session"
    message = f"cannot write an event through {kind}"
    return ConfigurationError(message, hints.get(type(connection).__name__, default))
