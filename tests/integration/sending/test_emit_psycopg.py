"""Events through psycopg, in the transaction of the caller."""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.rows import dict_row
from psycopg.types.string import StrDumper

from outbox_events import InvalidEventError, OutboxEvent, OutboxTable, emit, emit_async, emit_many
from outbox_events.errors import RefusedError

pytestmark = pytest.mark.integration

Connection = psycopg.Connection[tuple[Any, ...]]

EVENT: dict[str, Any] = {
    "aggregate_type": "book",
    "aggregate_id": "b-1",
    "event_type": "book_added",
    "payload": {"id": "b-1"},
}


def count(connection: Connection) -> int:
    row = connection.execute("select count(*) from outbox_event").fetchone()
    assert row is not None
    return int(row[0])


def test_writes_one_row_with_every_column(connection: Connection, second_session: Connection) -> None:
    event_id = emit(connection, **EVENT, headers={"traceparent": "00-1-2-01"})
    connection.commit()
    with psycopg.Cursor(second_session, row_factory=dict_row) as cursor:
        [row] = cursor.execute("select * from outbox_event").fetchall()
    assert isinstance(row.pop("seq"), int)
    assert (datetime.now(UTC) - row.pop("created_at")).total_seconds() < 60
    assert row == {"id": event_id, **EVENT, "headers": {"traceparent": "00-1-2-01"}}


def test_does_not_commit(connection: Connection, second_session: Connection) -> None:
    emit(connection, **EVENT)
    assert connection.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
    assert count(second_session) == 0
    connection.rollback()
    assert count(connection) == 0


def test_writes_sql_null_for_a_deleted_aggregate(connection: Connection) -> None:
    emit(connection, **{**EVENT, "payload": None})
    row = connection.execute("select payload is null, headers is null from outbox_event").fetchone()
    assert row == (True, True)


def test_rejects_a_duplicate_event_id(connection: Connection) -> None:
    key = uuid4()
    assert emit(connection, **EVENT, event_id=key) == key
    with pytest.raises(psycopg.errors.UniqueViolation):
        emit(connection, **EVENT, event_id=key)


def test_keeps_the_order_of_many_events(connection: Connection) -> None:
    events = [OutboxEvent(**{**EVENT, "aggregate_id": str(number)}) for number in range(50)]
    assert emit_many(connection, events) == [event.event_id for event in events]
    rows = connection.execute("select aggregate_id from outbox_event order by seq").fetchall()
    assert [row[0] for row in rows] == [str(number) for number in range(50)]


def test_writes_nothing_when_one_event_is_invalid(connection: Connection) -> None:
    with pytest.raises(InvalidEventError):
        emit_many(connection, [OutboxEvent(**EVENT), OutboxEvent(**{**EVENT, "aggregate_id": ""})])
    assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    assert count(connection) == 0


def test_runs_no_statement_without_events(connection: Connection) -> None:
    assert emit_many(connection, []) == []
    assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


RENAMED_TABLE = """
create table "Orders Outbox" (
  event_id uuid primary key, kind text, "business key" text, event_type text, body jsonb, headers jsonb,
  occurred_at timestamptz default now(),
  region text default 'none', version int, seq bigint generated always as identity
)
"""
RENAMED = OutboxTable(
    "Orders Outbox",
    columns={
        "id": "event_id",
        "aggregate_type": "kind",
        "aggregate_id": "business key",
        "payload": "body",
        "created_at": "occurred_at",
    },
)


def test_writes_renamed_and_additional_columns(connection: Connection) -> None:
    connection.execute(RENAMED_TABLE)
    events = [
        OutboxEvent(**EVENT, additional_columns={"region": "eu", "version": 2}),
        OutboxEvent(**EVENT, additional_columns={"region": "us", "version": None}),
        OutboxEvent(**EVENT),
    ]
    event_ids = emit_many(connection, events, table=RENAMED)
    emit(connection, **EVENT, additional_columns={"version": 4}, table=RENAMED)
    rows = connection.execute(
        """select event_id, kind, "business key", body, region, version from "Orders Outbox" order by seq"""
    ).fetchall()
    written = ("book", "b-1", {"id": "b-1"})
    assert [row[1:] for row in rows] == [
        (*written, "eu", 2),
        (*written, "us", None),
        (*written, "none", None),
        (*written, "none", 4),
    ]
    assert [row[0] for row in rows[:3]] == event_ids


def test_writes_to_another_table(connection: Connection) -> None:
    connection.execute('create schema "My App" create table "Out""box" (like public.outbox_event including all)')
    emit(connection, **EVENT, table='My App.Out"box')
    row = connection.execute('select count(*) from "My App"."Out""box"').fetchone()
    assert row == (1,)
    assert count(connection) == 0
    connection.rollback()


class TestAutocommit:
    def test_rejects_emit_outside_a_transaction(self, second_session: Connection) -> None:
        with pytest.raises(RefusedError, match="autocommit mode and no transaction is open") as raised:
            emit(second_session, **EVENT)
        assert "connection.transaction()" in raised.value.hint
        assert count(second_session) == 0

    def test_accepts_emit_inside_a_transaction(self, connection: Connection, second_session: Connection) -> None:
        with second_session.transaction():
            emit(second_session, **EVENT)
            assert count(connection) == 0
        assert count(connection) == 1

    def test_accepts_emit_inside_begin(self, second_session: Connection) -> None:
        second_session.execute("begin")
        emit(second_session, **EVENT)
        second_session.execute("rollback")
        assert count(second_session) == 0

    def test_rejects_emit_in_a_pipeline_without_a_transaction(self, second_session: Connection) -> None:
        with second_session.pipeline():
            second_session.execute("select 1")
            with pytest.raises(RefusedError):
                emit(second_session, **EVENT)
        assert count(second_session) == 0


def test_pipeline_mode_works_in_an_implicit_transaction(connection: Connection, second_session: Connection) -> None:
    with connection.pipeline():
        connection.execute("select 1")
        emit(connection, **EVENT)
        emit_many(connection, [OutboxEvent(**EVENT), OutboxEvent(**EVENT)])
    assert count(second_session) == 0
    connection.commit()
    assert count(second_session) == 3


@pytest.mark.parametrize("cursor", [psycopg.ClientCursor, psycopg.RawCursor])
def test_accepts_every_cursor_class(clean_dsn: str, cursor: Any) -> None:  # noqa: ANN401
    with psycopg.connect(clean_dsn, cursor_factory=cursor, row_factory=dict_row) as connection:
        connection.adapters.register_dumper(str, StrDumper)  # sends text as type text, not as unknown
        emit(connection, **EVENT)
        emit(connection, **{**EVENT, "payload": None})
        connection.rollback()


def test_rollback_to_a_savepoint_removes_the_event(connection: Connection) -> None:
    emit(connection, **EVENT)
    with connection.transaction():
        emit(connection, **EVENT)
        raise psycopg.Rollback
    assert count(connection) == 1


def test_stores_numbers_and_times_exactly(connection: Connection) -> None:
    payload = {
        "price": Decimal("9999999999.99"),
        "fine": Decimal("0.00"),
        "long": Decimal("0.1234567890123456789012345678901234567890"),
        "day": date(1583, 1, 1),
        "at": datetime(2024, 5, 6, 7, 8, 9, 123456, UTC),
        "author": UUID(int=1),
    }
    emit(connection, **{**EVENT, "payload": payload})
    row = connection.execute(
        "select (payload->>'price')::numeric, payload->>'fine', (payload->>'long')::numeric,"
        " (payload->>'day')::date, (payload->>'at')::timestamptz, (payload->>'author')::uuid,"
        " jsonb_typeof(payload->'price') from outbox_event"
    ).fetchone()
    assert row is not None
    assert row[:6] == (
        payload["price"],
        "0.00",
        payload["long"],
        payload["day"],
        payload["at"],
        payload["author"],
    )
    assert row[6] == "number"


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@given(
    payload=st.dictionaries(
        TEXT,
        TEXT
        | st.integers()
        | st.booleans()
        | st.none()
        | st.lists(TEXT)
        | st.decimals(allow_nan=False, allow_infinity=False),
    )
)
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_server_parses_the_encoded_json(connection: Connection, payload: dict[str, Any]) -> None:
    """jsonb stores every value that the library accepts with the same meaning."""
    event_id = emit(connection, **{**EVENT, "payload": payload})
    row = connection.execute("select payload from outbox_event where id = %s", [event_id]).fetchone()
    connection.rollback()
    assert row is not None
    # psycopg reads decimals as float; the next test compares them exactly.
    for name, value in payload.items():
        if not isinstance(value, Decimal):
            assert row[0][name] == value


@given(value=st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**40), max_value=10**40))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_server_parses_decimals_exactly(connection: Connection, value: Decimal) -> None:
    emit(connection, **{**EVENT, "payload": {"n": value}})
    row = connection.execute("select (payload->>'n')::numeric from outbox_event").fetchone()
    connection.rollback()
    assert row == (value,)


@pytest.mark.parametrize("value", [Decimal("9.9E+131071"), Decimal("1E-16383"), 10**4000])
def test_stores_the_largest_accepted_numbers(connection: Connection, value: Any) -> None:  # noqa: ANN401
    emit(connection, **{**EVENT, "payload": {"n": value}})
    assert count(connection) == 1


def test_accepts_asynchronous_connections(clean_dsn: str, second_session: Connection) -> None:
    async def write() -> list[UUID]:
        async with await psycopg.AsyncConnection.connect(clean_dsn) as connection:
            ids = await emit_async(connection, OutboxEvent(**EVENT))
            ids += await emit_async(connection, OutboxEvent(**EVENT), OutboxEvent(**EVENT))
            assert await emit_async(connection) == []
            assert count(second_session) == 0
        async with await psycopg.AsyncConnection.connect(clean_dsn, autocommit=True) as connection:
            with pytest.raises(RefusedError):
                await emit_async(connection, OutboxEvent(**EVENT))
        return ids

    ids = asyncio.run(write())
    rows = second_session.execute("select id from outbox_event order by seq").fetchall()
    assert [row[0] for row in rows] == ids
