"""Changes of authors and books. Each writes rows and their events in the caller's transaction.

A changed or deleted row is locked until the commit, so the events of an aggregate have the order of its states.
"""

from __future__ import annotations

from uuid import UUID, uuid4

from book_management.tables import OUTBOX, Author, Book, Connection, Row
from outbox_events import OutboxEvent, emit, emit_many


def add_author(connection: Connection, author: Author) -> UUID:
    """Add an author; return the id."""
    statement = """
        insert into author (id, name, country, born, pen_names)
        values (%(id)s, %(name)s, %(country)s, %(born)s, %(pen_names)s) returning *"""
    return _write(connection, "author", "author_added", statement, {"id": uuid4(), **vars(author)})


def change_author(connection: Connection, author_id: UUID, author: Author) -> UUID:
    """Replace the fields of an author. Raises LookupError."""
    statement = """
        update author set name = %(name)s, country = %(country)s, born = %(born)s, pen_names = %(pen_names)s,
               updated_at = clock_timestamp()
        where id = %(id)s returning *"""
    return _write(connection, "author", "author_changed", statement, {"id": author_id, **vars(author)})


def remove_author(connection: Connection, author_id: UUID) -> list[UUID]:
    """Remove an author with all books; return the ids of the books. Raises LookupError."""
    # The lock prevents other transactions from adding books of this author. All transactions lock authors before
    # books, and books in the order of their ids, because the opposite order could cause a deadlock.
    connection.execute("select from author where id = %s for update", [author_id])
    connection.execute("select from book where author_id = %s order by id for update", [author_id])
    books = connection.execute("delete from book where author_id = %s returning id", [author_id]).fetchall()
    authors = connection.execute("delete from author where id = %s returning id", [author_id]).fetchall()
    _send_removed(connection, *(("book", row) for row in books), *(("author", row) for row in authors))
    return [row["id"] for row in books]


def add_book(connection: Connection, author_id: UUID, book: Book, book_id: UUID | None = None) -> UUID:
    """Add a book of an existing author, with a new id or that of a removed book; return the id."""
    statement = """
        insert into book (id, author_id, title, subtitle, tags, price, published_on, status, pages)
        values (%(id)s, %(author_id)s, %(title)s, %(subtitle)s, %(tags)s, %(price)s, %(published_on)s, %(status)s,
                %(pages)s) returning *"""
    values = {"id": book_id or uuid4(), "author_id": author_id, **vars(book)}
    return _write(connection, "book", "book_added", statement, values)


def change_book(connection: Connection, book_id: UUID, book: Book) -> UUID:
    """Replace the fields of a book. Raises LookupError."""
    statement = """
        update book set title = %(title)s, subtitle = %(subtitle)s, tags = %(tags)s, price = %(price)s,
               published_on = %(published_on)s, status = %(status)s, pages = %(pages)s, updated_at = clock_timestamp()
        where id = %(id)s returning *"""
    return _write(connection, "book", "book_changed", statement, {"id": book_id, **vars(book)})


def move_book(connection: Connection, book_id: UUID, author_id: UUID) -> UUID:
    """Assign a book to another author, who must exist. Raises LookupError."""
    connection.execute("select from author where id = %s for key share", [author_id])  # before the book
    statement = """
        update book set author_id = %(author_id)s, updated_at = clock_timestamp() where id = %(id)s returning *"""
    return _write(connection, "book", "book_changed", statement, {"id": book_id, "author_id": author_id})


def remove_book(connection: Connection, book_id: UUID) -> None:
    """Remove a book. Raises LookupError."""
    books = connection.execute("delete from book where id = %s returning id", [book_id]).fetchall()
    _send_removed(connection, *(("book", row) for row in books))


def _write(connection: Connection, kind: str, event_type: str, statement: str, values: Row) -> UUID:
    """Write one row, and an event with the complete state as the database returns it; return the id."""
    row = connection.execute(statement, values).fetchone()
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
