"""Selection of the writer by the type of connection, and the SQL of each writer."""

# ruff: noqa: ANN401  (values of any type are what is tested)

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any, cast

import pytest
import sqlalchemy
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import Session

from outbox_events import InvalidEventError, OutboxEvent, emit, emit_async, emit_many
from outbox_events.errors import ConfigurationError
from outbox_events.sending import psycopg_writer, sqlalchemy_writer
from outbox_events.sending.outbox_table import OutboxTable

EVENT: dict[str, Any] = {
    "aggregate_type": "book",
    "aggregate_id": "1",
    "event_type": "book_added",
    "payload": {},
}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("outbox_event", ("outbox_event",)),
        ("public.outbox_event", ("public", "outbox_event")),
        ('My Schema.Out"box', ("My Schema", 'Out"box')),
    ],
)
def test_accepts_table_names(text: str, name: tuple[str, ...]) -> None:
    assert OutboxTable(text).parts == name


@pytest.mark.parametrize("text", ["", ".", "public.", ".outbox", "db.public.outbox", "a\0b"])
def test_rejects_invalid_table_names(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"TABLE or SCHEMA\.TABLE"):
        OutboxTable(text)


def test_rejects_unknown_columns() -> None:
    with pytest.raises(ConfigurationError, match="'key'") as raised:
        OutboxTable(columns={"key": "x"})
    assert "aggregate_id" in raised.value.hint


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"payload": "x"}, "payload"),
        ({"business_key": "x"}, "business_key"),
        ({"": "x"}, "is empty"),
        ({"a\0b": "x"}, "NUL"),
        ({"region": "a\0b"}, "column region"),
    ],
)
def test_rejects_invalid_additional_columns(columns: dict[str, str], problem: str) -> None:
    event = OutboxEvent(**EVENT, additional_columns=columns)
    with pytest.raises(InvalidEventError, match=problem):
        event.additional_values(OutboxTable(columns={"aggregate_id": "business_key"}))


def test_psycopg_quotes_the_table() -> None:
    text = psycopg_writer.insert_statement(OutboxTable('my schema.x"; drop table y; --'), ()).as_string(None)
    assert text.startswith('insert into "my schema"."x""; drop table y; --" ("id", ')


def test_statements_contain_the_columns_of_the_pipeline_file() -> None:
    table, additional = OutboxTable(columns={"aggregate_id": "order number"}), ("region",)
    for_psycopg = psycopg_writer.insert_statement(table, additional).as_string(None)
    statement = sqlalchemy_writer.insert_statement(table, additional)
    for_sqlalchemy = str(statement.compile(dialect=postgresql.dialect()))  # type: ignore[no-untyped-call]
    for text in (for_psycopg, for_sqlalchemy):
        names = text.partition("(")[2].partition(")")[0].replace('"', "").split(", ")
        assert sorted(names) == ["aggregate_type", "event_type", "headers", "id", "order number", "payload", "region"]


def test_sqlalchemy_quotes_the_table() -> None:
    statement = sqlalchemy_writer.insert_statement(OutboxTable('my schema.x"; :y %'), ())
    text = str(statement.compile(dialect=postgresql.dialect()))  # type: ignore[no-untyped-call]
    assert text.startswith('INSERT INTO "my schema"."x""; :y %%" ("id", ')


def test_sqlalchemy_keeps_the_case_of_the_table() -> None:
    statement = sqlalchemy_writer.insert_statement(OutboxTable("Outbox"), ())
    assert 'INSERT INTO "Outbox" (' in str(statement.compile(dialect=postgresql.dialect()))  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("connection", [None, "postgresql://localhost/x", object()])
def test_rejects_objects_that_are_not_connections(connection: Any) -> None:
    with pytest.raises(ConfigurationError, match="cannot write an event through") as raised:
        emit(connection, **EVENT)
    assert "psycopg 3 Connection" in raised.value.hint


def test_rejects_an_engine_with_a_hint() -> None:
    engine = sqlalchemy.create_engine("sqlite://")
    with pytest.raises(ConfigurationError, match="Engine") as raised:
        emit(cast("Any", engine), **EVENT)
    assert "engine.begin()" in raised.value.hint


def test_rejects_an_async_session_with_a_hint() -> None:
    # A fake class, because the real class cannot be imported without greenlet.
    kind = type("AsyncSession", (), {"__module__": "sqlalchemy.ext.asyncio.session"})
    with pytest.raises(ConfigurationError, match="AsyncSession") as raised:
        emit(cast("Any", kind()), **EVENT)
    assert "run_sync(emit_many" in raised.value.hint


def test_rejects_another_database_system() -> None:
    engine = sqlalchemy.create_engine("sqlite://")
    with engine.connect() as connection, pytest.raises(ConfigurationError, match="not to sqlite"):
        emit(connection, **EVENT)
    with Session(engine) as session, pytest.raises(ConfigurationError, match="not to sqlite"):
        emit(session, **EVENT)
    engine.dispose()


def test_checks_the_event_before_the_connection() -> None:
    with pytest.raises(InvalidEventError):
        emit(cast("Any", None), **{**EVENT, "aggregate_id": ""})
    with pytest.raises(InvalidEventError):
        emit_many(cast("Any", None), [OutboxEvent(**EVENT), OutboxEvent(**{**EVENT, "event_type": ""})])


def test_async_rejects_a_sync_connection() -> None:
    with pytest.raises(ConfigurationError, match="cannot write an event through") as raised:
        asyncio.run(emit_async(cast("Any", None), OutboxEvent(**EVENT)))
    assert "AsyncConnection" in raised.value.hint
    with Session() as session, pytest.raises(ConfigurationError, match="cannot write an event through") as raised:
        asyncio.run(emit_async(cast("Any", session), OutboxEvent(**EVENT)))
    assert "emit_many" in raised.value.hint


def test_import_loads_neither_sqlalchemy_nor_the_deploy_tool() -> None:
    code = (
        "import sys, outbox_events.sending\n"
        "print([m for m in ('sqlalchemy', 'confluent_kafka', 'pydantic', 'rich', 'typer') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout.strip() == "[]"
