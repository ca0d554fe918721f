"""Rentals. Each change writes the row and its event in the caller's transaction."""

from __future__ import annotations

from uuid import UUID

from book_rental.catalogue import Book
from book_rental.migration import OUTBOX
from book_rental.settings import Connection, Row
from outbox_events import emit


def request_rental(connection: Connection, book_id: UUID, reader: str) -> UUID:
    """Request a rental, which the service accepts or rejects later; return its id."""
    statement = "insert into rental.rental (book_id, reader) values (%s, %s) returning *"
    return _emit_state(connection, "rental_requested", connection.execute(statement, [book_id, reader]).fetchone())


def accept(connection: Connection, rental_id: str, book: Book) -> None:
    """Accept a requested rental."""
    statement = "update rental.rental set status = 'ACCEPTED', title = %s, author = %s where id = %s returning *"
    row = connection.execute(statement, [book.title, book.author, rental_id]).fetchone()
    _emit_state(connection, "rental_accepted", row)


def reject(connection: Connection, rental_id: str, reason: str) -> None:
    """Reject a requested rental."""
    statement = "update rental.rental set status = 'REJECTED', reason = %s where id = %s returning *"
    _emit_state(connection, "rental_rejected", connection.execute(statement, [reason, rental_id]).fetchone())


def _emit_state(connection: Connection, event_type: str, rental: Row | None) -> UUID:
    if rental is None:
        raise LookupError("no such rental")
    key: UUID = rental["id"]
    emit(connection, aggregate_type="rental", aggregate_id=key, event_type=event_type, payload=rental, table=OUTBOX)
    return key
