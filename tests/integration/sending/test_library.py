"""The example service: each change is a business row and an outbox row, or neither."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import fastavro
import psycopg
import pytest
from psycopg.rows import dict_row

from outbox_kit.demo import library_service
from outbox_kit.errors import ConfigurationError
from outbox_kit.pipeline.avro import read_definition

pytestmark = pytest.mark.integration

Connection = psycopg.Connection[tuple[Any, ...]]

SCHEMAS = Path(__file__).parents[3] / "schemas"


def events(connection: Connection) -> list[tuple[str, str, str, Any]]:
    """Return (event type, aggregate type, aggregate id, payload) of the events, in insertion order."""
    query = "select event_type, aggregate_type, aggregate_id, payload from outbox_event order by seq"
    return [(row[0], row[1], row[2], row[3]) for row in connection.execute(query).fetchall()]


def kinds(connection: Connection) -> list[str]:
    return [event[0] for event in events(connection)]


def add_one_book(connection: Connection) -> tuple[UUID, UUID]:
    author = library_service.add_author(connection, name="Ursula K. Le Guin")
    book = library_service.add_book(connection, author_id=author, title="The Dispossessed", price=Decimal("12.30"))
    assert book is not None
    return author, book


@pytest.mark.parametrize("kind", ["author", "book"])
def test_columns_match_the_fields_of_the_schema(connection: Connection, kind: str) -> None:
    schema = read_definition(SCHEMAS / f"{kind}.avsc")
    fields = tuple(field["name"] for field in schema["fields"])
    columns = connection.execute(
        "select column_name::text, is_nullable = 'YES' from information_schema.columns"
        " where table_schema = 'library' and table_name = %s order by ordinal_position",
        [kind],
    ).fetchall()
    assert library_service.COLUMNS[kind] == fields
    assert columns == [(field["name"], "null" in field["type"]) for field in schema["fields"]]


def test_repeated_create_changes_nothing(connection: Connection) -> None:
    add_one_book(connection)
    library_service.create_tables(connection)
    assert len(events(connection)) == 2


def test_payload_equals_the_database_row(connection: Connection) -> None:
    author, book = add_one_book(connection)
    with psycopg.Cursor(connection, row_factory=dict_row) as cursor:
        [row] = cursor.execute("select * from library.book").fetchall()
    kind, aggregate, key, payload = events(connection)[1]
    assert (kind, aggregate, key) == ("book_added", "book", str(book))
    assert datetime.fromisoformat(payload.pop("updated_at")) == row["updated_at"]
    assert payload == {
        "id": str(book),
        "author_id": str(author),
        "title": "The Dispossessed",
        "subtitle": None,
        "tags": [],
        "price": 12.30,
        "published_on": None,
        "status": "AVAILABLE",
        "pages": None,
    }


def test_payloads_match_the_schemas(connection: Connection) -> None:
    """Convert JSON forms to the values of the Avro writer."""
    author, book = add_one_book(connection)
    library_service.change_author(connection, author, born=date(1929, 10, 21), pen_names=["U. K."], country="US")
    library_service.change_book(connection, book, published_on=date(1974, 5, 1), pages=341, tags=["a"], subtitle="x")
    for _, aggregate, _, payload in events(connection):
        record = dict(payload, updated_at=datetime.fromisoformat(payload["updated_at"]))
        for name in {"born", "published_on"} & record.keys():
            record[name] = None if record[name] is None else date.fromisoformat(record[name])
        if "price" in record:
            record["price"] = Decimal(str(record["price"]))
        schema = fastavro.parse_schema(read_definition(SCHEMAS / f"{aggregate}.avsc"))
        assert fastavro.validate(record, schema, strict=True)


def test_change_events_contain_the_whole_state(connection: Connection) -> None:
    _, book = add_one_book(connection)
    assert library_service.change_book(connection, book, status=library_service.BookStatus.LENT)
    kind, _, _, payload = events(connection)[2]
    assert (kind, payload["status"], payload["title"]) == ("book_changed", "LENT", "The Dispossessed")


def test_change_updates_the_time_within_one_transaction(connection: Connection) -> None:
    with connection.transaction():
        author, _ = add_one_book(connection)
        library_service.change_author(connection, author, name="U.")
        library_service.change_author(connection, author, name="K.")
    times = [event[3]["updated_at"] for event in events(connection) if event[1] == "author"]
    assert len(set(times)) == 3
    assert times == sorted(times)


def test_deleting_an_author_deletes_the_books_first(connection: Connection) -> None:
    author, book = add_one_book(connection)
    second = library_service.add_book(connection, author_id=author, title="Lavinia", price=Decimal(1))
    assert set(library_service.remove_author(connection, author) or []) == {book, second}
    last = events(connection)[3:]
    assert [event[:2] for event in last] == [
        ("book_removed", "book"),
        ("book_removed", "book"),
        ("author_removed", "author"),
    ]
    assert {event[3] for event in last} == {None}
    assert last[2][2] == str(author)


def test_no_event_for_a_missing_aggregate(connection: Connection) -> None:
    missing_author = uuid4()
    _, book = add_one_book(connection)
    assert not library_service.change_author(connection, missing_author, name="x")
    assert not library_service.change_book(connection, missing_author, title="x")
    assert not library_service.change_book(connection, book, author_id=missing_author)
    assert not library_service.remove_book(connection, missing_author)
    assert library_service.remove_author(connection, missing_author) is None
    assert library_service.add_book(connection, author_id=missing_author, title="x", price=Decimal(1)) is None
    assert kinds(connection) == ["author_added", "book_added"]


def test_deleted_book_can_be_recreated_with_its_id(connection: Connection) -> None:
    author, book = add_one_book(connection)
    library_service.remove_book(connection, book)
    assert library_service.add_book(connection, book_id=book, author_id=author, title="Again", price=Decimal(1)) == book
    assert kinds(connection)[1:] == ["book_added", "book_removed", "book_added"]


def test_rejects_unknown_fields(connection: Connection) -> None:
    with pytest.raises(ConfigurationError, match="author has no field isbn"):
        library_service.add_author(connection, name="x", isbn="1")  # type: ignore[call-arg]


def test_each_call_is_one_transaction_when_none_is_open(connection: Connection, second_session: Connection) -> None:
    add_one_book(connection)
    assert kinds(second_session) == ["author_added", "book_added"]
    assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


def test_calls_join_the_open_transaction(connection: Connection, second_session: Connection) -> None:
    connection.execute("select 1")
    add_one_book(connection)
    assert kinds(second_session) == []
    connection.rollback()
    assert kinds(second_session) == []


def test_writes_both_rows_or_none(connection: Connection, second_session: Connection) -> None:
    """When the outbox insert fails, the business row is rolled back too, also in autocommit mode."""
    second_session.execute(
        "alter table outbox_event add constraint no_more check (event_type <> 'author_added') not valid"
    )
    try:
        for session in (connection, second_session):
            with pytest.raises(psycopg.errors.CheckViolation):
                library_service.add_author(session, name="x")
    finally:
        second_session.execute("alter table outbox_event drop constraint no_more")
    assert second_session.execute("select count(*) from library.author").fetchone() == (0,)
