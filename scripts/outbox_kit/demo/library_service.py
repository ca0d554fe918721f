"""The example service: a library of authors and books that writes an event for each change.

Each function writes the business row and the outbox row in one transaction: the connection's open
transaction, or a new one. The payload is built from the row as the database returns it, so that
defaults, rounding and other sessions' changes to the same row are included. Every function takes the
row's lock before it writes the event, so the events of an aggregate are committed in the order of its states.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from decimal import Decimal
from enum import StrEnum
from typing import Any, LiteralString, TypedDict, Unpack
from uuid import UUID, uuid4

from psycopg import Connection, Cursor, sql
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row, scalar_row

from outbox_events import OutboxEvent, emit, emit_many
from outbox_kit.errors import ConfigurationError

SCHEMA = "library"

DDL = """
create schema if not exists library;

create table if not exists library.author (
  id          uuid primary key,
  name        text not null,
  country     text check (country ~ '^[A-Z]{2}$'),
  born        date,
  pen_names   text[] not null default '{}',
  updated_at  timestamptz not null
);

create table if not exists library.book (
  id            uuid primary key,
  author_id     uuid not null references library.author,
  title         text not null,
  subtitle      text,
  tags          text[] not null default '{}',
  price         numeric(12, 2) not null,
  published_on  date,
  status        text not null check (status in ('AVAILABLE', 'LENT', 'LOST')),
  pages         integer,
  updated_at    timestamptz not null
);

create index if not exists book_author_id on library.book (author_id);
"""

# Fields of the Avro schemas. They are listed, so that a column that is added to a table later is not in the events.
COLUMNS = {
    "author": ("id", "name", "country", "born", "pen_names", "updated_at"),
    "book": (
        *("id", "author_id", "title", "subtitle", "tags"),
        *("price", "published_on", "status", "pages", "updated_at"),
    ),
}


class BookStatus(StrEnum):
    """Values of the column library.book.status."""

    AVAILABLE = "AVAILABLE"
    LENT = "LENT"
    LOST = "LOST"


class AuthorChanges(TypedDict, total=False):
    """Fields of an author that can be set."""

    name: str
    country: str | None
    born: date | None
    pen_names: Sequence[str]


class BookChanges(TypedDict, total=False):
    """Fields of a book that can be set."""

    author_id: UUID
    title: str
    subtitle: str | None
    tags: Sequence[str]
    price: Decimal
    published_on: date | None
    status: BookStatus
    pages: int | None


def create_tables(connection: Connection[Any]) -> None:
    """Create the schema and the business tables that do not exist."""
    with connection.transaction():
        connection.execute(DDL)


def add_author(connection: Connection[Any], *, author_id: UUID | None = None, **fields: Unpack[AuthorChanges]) -> UUID:
    """Add an author, and return the id. The field `name` is required."""
    with _in_transaction(connection):
        return _add(connection, "author", author_id, dict(fields))


def change_author(connection: Connection[Any], author_id: UUID, **changes: Unpack[AuthorChanges]) -> bool:
    """Change an author; return False, without an event, if the author does not exist."""
    with _in_transaction(connection):
        return _change(connection, "author", author_id, dict(changes))


def remove_author(connection: Connection[Any], author_id: UUID) -> list[UUID] | None:
    """Remove an author's books, then the author, with one event for each row.

    Return the ids of the books; return None, without an event, if the author does not exist.
    """
    with _in_transaction(connection):
        # Lock the author before its books: no book can be added meanwhile, and the fixed order prevents deadlocks.
        if not _lock_author(connection, author_id, "for update"):
            return None
        query = sql.SQL("select id from library.book where author_id = %s order by id for update")
        book_ids = _query_ids(connection, query, [author_id])
        connection.execute("delete from library.book where id = any(%s)", [book_ids])
        emit_many(connection, [_removal_event("book", book_id) for book_id in book_ids])
        _remove(connection, "author", author_id)
        return book_ids


def add_book(connection: Connection[Any], *, book_id: UUID | None = None, **fields: Unpack[BookChanges]) -> UUID | None:
    """Add a book; return the id, or None if the author does not exist. Required: author_id, title and price."""
    with _in_transaction(connection):
        # Without this check, a foreign key violation would abort the whole transaction.
        if not _lock_author(connection, fields["author_id"], "for key share"):
            return None
        return _add(connection, "book", book_id, {"status": BookStatus.AVAILABLE, **fields})


def change_book(connection: Connection[Any], book_id: UUID, **changes: Unpack[BookChanges]) -> bool:
    """Change a book; return False, without an event, if the book or its new author does not exist."""
    with _in_transaction(connection):
        author_id = changes.get("author_id")
        if author_id is not None and not _lock_author(connection, author_id, "for key share"):
            return False
        return _change(connection, "book", book_id, dict(changes))


def remove_book(connection: Connection[Any], book_id: UUID) -> bool:
    """Remove a book; return False, without an event, if the book does not exist."""
    with _in_transaction(connection):
        return _remove(connection, "book", book_id)


@contextmanager
def _in_transaction(connection: Connection[Any]) -> Iterator[None]:
    """Use the open transaction, or begin one. Unlike `transaction()`, this creates no savepoint."""
    if connection.info.transaction_status == TransactionStatus.IDLE:
        with connection.transaction():
            yield
    else:
        yield


def _lock_author(connection: Connection[Any], author_id: UUID, lock_clause: LiteralString) -> bool:
    query = sql.SQL("select id from library.author where id = %s ") + sql.SQL(lock_clause)
    return bool(_query_ids(connection, query, [author_id]))


def _query_ids(connection: Connection[Any], query: sql.Composed | sql.SQL, values: list[UUID]) -> list[UUID]:
    with Cursor(connection, row_factory=scalar_row) as cursor:
        return cursor.execute(query, values).fetchall()


def _add(connection: Connection[Any], kind: str, key: UUID | None, fields: dict[str, Any]) -> UUID:
    values = {"id": uuid4() if key is None else key, **fields}
    [row] = _write(
        connection,
        sql.SQL("insert into {table} ({names}, updated_at) values ({placeholders}, clock_timestamp())").format(
            table=sql.Identifier(SCHEMA, kind),
            names=_column_list(kind, values),
            placeholders=sql.SQL(", ").join(sql.Placeholder(name) for name in values),
        ),
        kind,
        values,
    )
    return _emit(connection, kind, "added", row)


def _change(connection: Connection[Any], kind: str, key: UUID, changes: dict[str, Any]) -> bool:
    assignments = [sql.SQL("{} = {}").format(_column_list(kind, [name]), sql.Placeholder(name)) for name in changes]
    rows = _write(
        connection,
        # clock_timestamp() instead of now(), so that two changes in one transaction have different times.
        sql.SQL("update {table} set {assignments} where id = %(id)s").format(
            table=sql.Identifier(SCHEMA, kind),
            assignments=sql.SQL(", ").join([*assignments, sql.SQL("updated_at = clock_timestamp()")]),
        ),
        kind,
        {"id": key, **changes},
    )
    for row in rows:
        _emit(connection, kind, "changed", row)
    return bool(rows)


def _remove(connection: Connection[Any], kind: str, key: UUID) -> bool:
    statement = sql.SQL("delete from {} where id = %s").format(sql.Identifier(SCHEMA, kind))
    if connection.execute(statement, [key]).rowcount == 0:
        return False
    emit_many(connection, [_removal_event(kind, key)])
    return True


def _write(
    connection: Connection[Any], statement: sql.Composed, kind: str, values: dict[str, Any]
) -> list[dict[str, Any]]:
    """Run a statement that writes at most one business row; return a list of the written rows."""
    returning_statement = sql.SQL("{} returning {}").format(statement, _column_list(kind, COLUMNS[kind]))
    with Cursor(connection, row_factory=dict_row) as cursor:
        return cursor.execute(returning_statement, values).fetchall()


def _column_list(kind: str, names: Sequence[str] | dict[str, Any]) -> sql.Composed:
    unknown = sorted(set(names) - set(COLUMNS[kind]))
    if unknown:
        raise ConfigurationError(f"a {kind} has no field {', '.join(unknown)}")
    return sql.SQL(", ").join(map(sql.Identifier, names))


def _emit(connection: Connection[Any], kind: str, action: str, row: dict[str, Any]) -> UUID:
    key: UUID = row["id"]
    emit(connection, aggregate_type=kind, aggregate_id=key, event_type=f"{kind}_{action}", payload=row)
    return key


def _removal_event(kind: str, key: UUID) -> OutboxEvent:
    return OutboxEvent(aggregate_type=kind, aggregate_id=key, event_type=f"{kind}_removed", payload=None)
