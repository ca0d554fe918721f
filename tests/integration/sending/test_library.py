"""The example service as the demo runs it. Each change writes both a business row and an outbox row, or neither."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import fastavro
import psycopg
import pytest
from book_management import changes
from book_management.tables import Author, Book, Connection
from tests.conftest import REPOSITORY

from outbox_kit.demo import workload
from outbox_kit.pipeline.avro import read_definition

pytestmark = pytest.mark.integration

SCHEMAS = REPOSITORY / "schemas"
SERVICE_SCHEMAS = REPOSITORY / "docs" / "examples" / "book_management" / "schemas"


@pytest.fixture
def connection(clean_dsn: str) -> Iterator[Connection]:
    """Open a connection as the demo does, with empty tables."""
    with workload.connect(clean_dsn) as connection:
        yield connection


def events(connection: Connection) -> list[tuple[str, str, str, Any]]:
    """Return (event type, aggregate type, aggregate id, payload) of the events, in insertion order."""
    query = "select event_type, aggregate_type, aggregate_id, payload from outbox_event order by seq"
    rows = connection.execute(query).fetchall()
    return [(row["event_type"], row["aggregate_type"], row["aggregate_id"], row["payload"]) for row in rows]


def kinds(connection: Connection) -> list[str]:
    return [event[0] for event in events(connection)]


def add_one_book(connection: Connection) -> tuple[UUID, UUID]:
    author = changes.add_author(connection, Author("Ursula K. Le Guin"))
    return author, changes.add_book(connection, author, Book("The Dispossessed", Decimal("12.30")))


@pytest.mark.parametrize("folder", [SCHEMAS, SERVICE_SCHEMAS], ids=["demo", "service"])
@pytest.mark.parametrize("kind", ["author", "book"])
def test_columns_match_the_fields_of_the_schema(connection: Connection, kind: str, folder: Path) -> None:
    schema = read_definition(folder / f"{kind}.avsc")
    columns = connection.execute(
        "select column_name::text as name, is_nullable = 'YES' as is_nullable from information_schema.columns"
        " where table_schema = 'library' and table_name = %s order by ordinal_position",
        [kind],
    ).fetchall()
    fields = [{"name": field["name"], "is_nullable": "null" in field["type"]} for field in schema["fields"]]
    assert columns == fields


def test_repeated_create_changes_nothing(connection: Connection) -> None:
    add_one_book(connection)
    workload.create_tables(connection)
    assert len(events(connection)) == 2


def test_payload_equals_the_database_row(connection: Connection) -> None:
    author, book = add_one_book(connection)
    [row] = connection.execute("select * from library.book").fetchall()
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
    changes.change_author(connection, author, Author("Ursula", "US", date(1929, 10, 21), ["U. K."]))
    changed = Book("x", Decimal(1), "x", ["a"], date(1974, 5, 1), "LOST", 341)
    changes.change_book(connection, book, changed)
    for _, aggregate, _, payload in events(connection):
        record = dict(payload, updated_at=datetime.fromisoformat(payload["updated_at"]))
        for name in {"born", "published_on"} & record.keys():
            record[name] = None if record[name] is None else date.fromisoformat(record[name])
        if "price" in record:
            record["price"] = Decimal(str(record["price"]))
        schema = fastavro.parse_schema(read_definition(SCHEMAS / f"{aggregate}.avsc"))
        assert fastavro.validate(record, schema, strict=True)


def test_moved_book_has_an_event_with_the_whole_state(connection: Connection) -> None:
    _, book = add_one_book(connection)
    author = changes.add_author(connection, Author("Stanisław Lem"))
    changes.move_book(connection, book, author)
    kind, _, _, payload = events(connection)[3]
    assert (kind, payload["author_id"], payload["title"]) == ("book_changed", str(author), "The Dispossessed")


def test_change_updates_the_time_within_one_transaction(connection: Connection) -> None:
    author, _ = add_one_book(connection)
    changes.change_author(connection, author, Author("U."))
    changes.change_author(connection, author, Author("K."))
    times = [event[3]["updated_at"] for event in events(connection) if event[1] == "author"]
    assert len(set(times)) == 3
    assert times == sorted(times)


def test_deleting_an_author_deletes_the_books_first(connection: Connection) -> None:
    author, book = add_one_book(connection)
    second = changes.add_book(connection, author, Book("Lavinia", Decimal(1)))
    assert set(changes.remove_author(connection, author)) == {book, second}
    last = events(connection)[3:]
    assert [event[:2] for event in last] == [
        ("book_removed", "book"),
        ("book_removed", "book"),
        ("author_removed", "author"),
    ]
    assert {event[3] for event in last} == {None}
    assert last[2][2] == str(author)


def test_no_event_for_a_missing_aggregate(connection: Connection) -> None:
    missing = uuid4()
    author, book = add_one_book(connection)
    for change in (
        lambda: changes.change_author(connection, missing, Author("x")),
        lambda: changes.change_book(connection, missing, Book("x", Decimal(1))),
        lambda: changes.move_book(connection, missing, author),
        lambda: changes.remove_book(connection, missing),
        lambda: changes.remove_author(connection, missing),
    ):
        with pytest.raises(LookupError):
            change()
    for change in (
        lambda: changes.move_book(connection, book, missing),
        lambda: changes.add_book(connection, missing, Book("x", Decimal(1))),
    ):
        with pytest.raises(psycopg.errors.ForeignKeyViolation), connection.transaction():
            change()
    assert kinds(connection) == ["author_added", "book_added"]


def test_removed_book_can_be_added_again_with_its_id(connection: Connection) -> None:
    author, book = add_one_book(connection)
    changes.remove_book(connection, book)
    assert changes.add_book(connection, author, Book("Again", Decimal(1)), book) == book
    assert kinds(connection)[1:] == ["book_added", "book_removed", "book_added"]


def test_changes_belong_to_the_transaction_of_the_caller(connection: Connection, clean_dsn: str) -> None:
    add_one_book(connection)
    with workload.connect(clean_dsn) as other:
        assert kinds(other) == []
    connection.rollback()
    assert kinds(connection) == []


def test_writes_both_rows_or_none(connection: Connection, second_session: psycopg.Connection[Any]) -> None:
    """If the outbox insert fails, the business row is also rolled back."""
    second_session.execute(
        "alter table outbox_event add constraint no_more check (event_type <> 'author_added') not valid"
    )
    try:
        with pytest.raises(psycopg.errors.CheckViolation), connection:
            changes.add_author(connection, Author("x"))
    finally:
        second_session.execute("alter table outbox_event drop constraint no_more")
    assert second_session.execute("select count(*) from library.author").fetchone() == (0,)
