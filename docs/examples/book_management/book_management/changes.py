"""Changes of authors and books. Each writes rows and their events in the caller's transaction.

A changed or deleted row is locked until the commit, so the events of an aggregate have the order of its states.
"""

from __future__ import annotations

from uuid import UUID

from book_management.tables import OUTBOX, Connection, Row
from outbox_events import OutboxEvent, emit, emit_many


def add_author(connection: Connection, name: str, country: str | None = None) -> UUID:
    """Add an author; return the id."""
    statement = "insert into books.author (name, country) values (%s, %s) returning *"
    return _send(connection, "author", "author_added", connection.execute(statement, [name, country]).fetchone())


def change_author(connection: Connection, author_id: UUID, name: str, country: str | None = None) -> UUID:
    """Replace the fields of an author. Raises LookupError."""
    statement = "update books.author set name = %s, country = %s where id = %s returning *"
    changed = connection.execute(statement, [name, country, author_id]).fetchone()
    return _send(connection, "author", "author_changed", changed)


def remove_author(connection: Connection, author_id: UUID) -> None:
    """Remove an author with all books. Raises LookupError."""
    # The lock prevents other transactions from adding books of this author.
    connection.execute("select from books.author where id = %s for update", [author_id])
    books = connection.execute("delete from books.book where author_id = %s returning id", [author_id]).fetchall()
    authors = connection.execute("delete from books.author where id = %s returning id", [author_id]).fetchall()
    _send_removed(connection, *(("book", row) for row in books), *(("author", row) for row in authors))


def add_book(connection: Connection, author_id: UUID, title: str, pages: int | None = None) -> UUID:
    """Add a book of an existing author; return the id."""
    statement = "insert into books.book (author_id, title, pages) values (%s, %s, %s) returning *"
    return _send(connection, "book", "book_added", connection.execute(statement, [author_id, title, pages]).fetchone())


def change_book(connection: Connection, book_id: UUID, title: str, pages: int | None = None) -> UUID:
    """Replace the fields of a book. Raises LookupError."""
    statement = "update books.book set title = %s, pages = %s where id = %s returning *"
    changed = connection.execute(statement, [title, pages, book_id]).fetchone()
    return _send(connection, "book", "book_changed", changed)


def remove_book(connection: Connection, book_id: UUID) -> None:
    """Remove a book. Raises LookupError."""
    books = connection.execute("delete from books.book where id = %s returning id", [book_id]).fetchall()
    _send_removed(connection, *(("book", row) for row in books))


def _send(connection: Connection, kind: str, event_type: str, row: Row | None) -> UUID:
    """Send the complete state of an author or a book; return its id."""
    if row is None:
        raise LookupError(f"no such {kind}")
    key: UUID = row["id"]
    emit(connection, aggregate_type=kind, aggregate_id=key, event_type=event_type, payload=row, table=OUTBOX)
    return key


def _send_removed(connection: Connection, *removed: tuple[str, Row]) -> None:
    """Send an event without payload for each removed aggregate: its record is a tombstone."""
    if not removed:
        raise LookupError("no such author or book")
    events = [
        OutboxEvent(aggregate_type=kind, aggregate_id=row["id"], event_type=f"{kind}_removed", payload=None)
        for kind, row in removed
    ]
    emit_many(connection, events, table=OUTBOX)
