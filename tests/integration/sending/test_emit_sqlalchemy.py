"""Events through SQLAlchemy's Connection, Session and scoped_session on a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
import sqlalchemy
from sqlalchemy import DateTime, Engine, Text, Uuid, create_engine, text
from sqlalchemy.event import listen
from sqlalchemy.orm import DeclarativeBase, Session, mapped_column, scoped_session, sessionmaker

from outbox_events import OutboxEvent, OutboxTable, emit, emit_many
from outbox_events.errors import RefusedError

pytestmark = pytest.mark.integration

EVENT: dict[str, Any] = {
    "aggregate_type": "book",
    "aggregate_id": "b-1",
    "event_type": "book_added",
    "payload": {"price": Decimal("9999999999.99"), "title": 'a "b" \\ %s :c'},
}


@pytest.fixture
def engine(clean_dsn: str) -> Iterator[Engine]:
    # This serializer loses data, so the JSON of outbox-kit must not pass through it.
    engine = create_engine(
        "postgresql+psycopg://",
        creator=lambda: psycopg.connect(clean_dsn),
        json_serializer=lambda _: '"wrong"',
    )
    yield engine
    engine.dispose()


def rows(second_session: psycopg.Connection[Any]) -> list[Any]:
    return second_session.execute("select id, payload::text, headers from outbox_event order by seq").fetchall()


def test_emits_through_a_connection(engine: Engine, second_session: psycopg.Connection[Any]) -> None:
    with engine.begin() as connection:
        event_id = emit(connection, **EVENT, headers={"a": "b"})
        assert rows(second_session) == []
    [(key, payload, headers)] = rows(second_session)
    assert (key, headers) == (event_id, {"a": "b"})
    assert json.loads(payload, parse_float=Decimal) == EVENT["payload"]


def test_connection_begins_a_transaction_and_does_not_commit(
    engine: Engine, second_session: psycopg.Connection[Any]
) -> None:
    with engine.connect() as connection:
        emit(connection, **EVENT)
        assert connection.in_transaction()
    assert rows(second_session) == []


def test_emits_through_a_session(engine: Engine, second_session: psycopg.Connection[Any]) -> None:
    with Session(engine) as session:
        emit(session, **EVENT)
        assert rows(second_session) == []
        session.rollback()
        emit(session, **{**EVENT, "payload": None})
        session.commit()
    [(_, payload, headers)] = rows(second_session)
    assert (payload, headers) == (None, None)


def test_session_and_business_rows_are_in_one_transaction(
    engine: Engine, second_session: psycopg.Connection[Any]
) -> None:
    with Session(engine) as session, session.begin():
        session.execute(
            text("insert into library.author (id, name, updated_at) values (gen_random_uuid(), 'A', now())")
        )
        emit(session, **EVENT)
        query = (
            "select pg_current_xact_id()::text, (select xmin::text from outbox_event),"
            " (select xmin::text from library.author)"
        )
        current, event, author = session.execute(text(query)).one()
    assert current == event == author
    assert len(rows(second_session)) == 1


class Base(DeclarativeBase):
    pass


class Author(Base):
    __tablename__ = "author"
    __table_args__ = ({"schema": "library"},)
    id = mapped_column(Uuid, primary_key=True)
    name = mapped_column(Text, nullable=False)
    updated_at = mapped_column(DateTime(timezone=True), nullable=False)


@pytest.fixture
def author(clean_dsn: str) -> UUID:
    """Insert an author and return its id."""
    author_id = uuid4()
    with psycopg.connect(clean_dsn) as connection:
        connection.execute("insert into library.author (id, name, updated_at) values (%s, 'A', now())", [author_id])
    return author_id


def test_a_session_locks_the_changed_rows_before_the_outbox_row_gets_its_place(
    engine: Engine, author: UUID, second_session: psycopg.Connection[Any]
) -> None:
    """Otherwise, another transaction could change the same row later and send its event earlier, or the reverse."""
    with Session(engine, autoflush=False) as session:
        session.delete(session.get(Author, author))
        emit(session, **{**EVENT, "aggregate_id": str(author), "payload": None})
        second_session.execute("set lock_timeout = '50ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            second_session.execute("update library.author set name = 'B' where id = %s", [author])
        session.commit()
    assert len(rows(second_session)) == 1


def test_emits_in_a_listener_of_a_flush(engine: Engine, author: UUID, second_session: psycopg.Connection[Any]) -> None:
    with Session(engine) as session:
        listen(session, "after_flush", lambda flushed, _: emit(flushed, **EVENT))
        session.delete(session.get(Author, author))
        session.commit()
    assert len(rows(second_session)) == 1


def test_emits_through_a_scoped_session(engine: Engine, second_session: psycopg.Connection[Any]) -> None:
    session = scoped_session(sessionmaker(engine))
    emit(session, **EVENT)
    session.commit()
    session.remove()
    assert len(rows(second_session)) == 1


def test_emits_in_a_nested_transaction(engine: Engine, second_session: psycopg.Connection[Any]) -> None:
    with Session(engine) as session:
        emit(session, **EVENT)
        with session.begin_nested() as savepoint:
            emit(session, **EVENT)
            savepoint.rollback()
        session.commit()
    assert len(rows(second_session)) == 1


def test_emits_many_events_in_order(engine: Engine, second_session: psycopg.Connection[Any]) -> None:
    events = [OutboxEvent(**EVENT) for _ in range(20)]
    with engine.begin() as connection:
        ids = emit_many(connection, events)
        assert emit_many(connection, []) == []
    assert [row[0] for row in rows(second_session)] == ids == [event.event_id for event in events]


def test_writes_renamed_and_additional_columns(engine: Engine) -> None:
    table = OutboxTable("Renamed", columns={"aggregate_id": "business key"})
    with engine.connect() as connection:
        connection.execute(
            text(
                'create temp table "Renamed" (id uuid, aggregate_type text, "business key" text, event_type text,'
                ' payload jsonb, headers jsonb, version int, "sales region" text)'
            )
        )
        emit(connection, **EVENT, additional_columns={"version": 2, "sales region": "eu"}, table=table)
        stored = connection.execute(text('select "business key", version, "sales region" from "Renamed"')).all()
    assert stored == [("b-1", 2, "eu")]


@pytest.mark.parametrize("set_on", ["engine", "connection", "create_engine"])
def test_rejects_autocommit(
    engine: Engine, clean_dsn: str, second_session: psycopg.Connection[Any], set_on: str
) -> None:
    if set_on == "create_engine":
        engine.dispose()
        engine = create_engine(
            "postgresql+psycopg://", creator=lambda: psycopg.connect(clean_dsn), isolation_level="AUTOCOMMIT"
        )
    elif set_on == "engine":
        engine = engine.execution_options(isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        if set_on == "connection":
            connection.execution_options(isolation_level="AUTOCOMMIT")
        with pytest.raises(RefusedError, match="isolation level AUTOCOMMIT"):
            emit(connection, **EVENT)
    with Session(engine) as session:
        if set_on == "connection":
            session.connection(execution_options={"isolation_level": "AUTOCOMMIT"})
        with pytest.raises(RefusedError, match="isolation level AUTOCOMMIT"):
            emit(session, **EVENT)
    engine.dispose()
    assert rows(second_session) == []


def test_raises_database_errors_of_sqlalchemy(engine: Engine) -> None:
    with engine.connect() as connection, pytest.raises(sqlalchemy.exc.ProgrammingError):
        emit(connection, **EVENT, table="no_such_table")
