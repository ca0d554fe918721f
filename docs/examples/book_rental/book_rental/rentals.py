"""Rentals. Each change writes the row and its event in the caller's transaction."""

from __future__ import annotations

from uuid import UUID

from book_rental.catalogue import Book, release
from book_rental.migration import OUTBOX
from book_rental.settings import Connection, Row
from outbox_events import emit


def request_rental(connection: Connection, book_id: UUID, reader: str) -> UUID:
    """Request a rental, which the service accepts or rejects later; return its id."""
    statement = "insert into rental.rental (book_id, reader) values (%s, %s) returning *"
    return _emit_state(connection, "rental_requested", connection.execute(statement, [book_id, reader]).fetchone())


def reserve(connection: Connection, rental_id: str, book: Book) -> None:
    """Store that the book of a requested rental is reserved."""
    statement = """
        update rental.rental set status = 'RESERVED', title = %s, author = %s
        where id = %s and status = 'REQUESTED' returning *"""
    row = connection.execute(statement, [book.title, book.author, rental_id]).fetchone()
    _emit_state(connection, "rental_reserved", row)


def is_reserved(connection: Connection, rental_id: str) -> bool:
    """Return whether the book of the rental is reserved, and the rental is neither accepted nor rejected."""
    statement = "select from rental.rental where id = %s and status = 'RESERVED'"
    return connection.execute(statement, [rental_id]).fetchone() is not None


def accept(connection: Connection, rental_id: str) -> None:
    """Accept a rental whose book is reserved."""
    statement = "update rental.rental set status = 'ACCEPTED' where id = %s and status = 'RESERVED' returning *"
    _emit_state(connection, "rental_accepted", connection.execute(statement, [rental_id]).fetchone())


def reject(connection: Connection, rental_id: str, reason: str) -> None:
    """Reject a requested or reserved rental, and make its book available."""
    release(connection, rental_id)
    statement = """
        update rental.rental set status = 'REJECTED', reason = %s
        where id = %s and status in ('REQUESTED', 'RESERVED') returning *"""
    _emit_state(connection, "rental_rejected", connection.execute(statement, [reason, rental_id]).fetchone())


def return_book(connection: Connection, rental_id: UUID) -> None:
    """End an accepted rental, and make its book available. Raises LookupError."""
    release(connection, str(rental_id))
    statement = "update rental.rental set status = 'RETURNED' where id = %s and status = 'ACCEPTED' returning *"
    _emit_state(connection, "rental_returned", connection.execute(statement, [rental_id]).fetchone())


def _emit_state(connection: Connection, event_type: str, rental: Row | None) -> UUID:
    if rental is None:
        raise LookupError("no such rental, or its status does not allow the change")
    key: UUID = rental["id"]
    emit(connection, aggregate_type="rental", aggregate_id=key, event_type=event_type, payload=rental, table=OUTBOX)
    return key
