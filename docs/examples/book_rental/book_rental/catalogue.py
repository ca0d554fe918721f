"""Copy of the books and authors of the book management, in the database of the service, with the books' availability.

A removed book keeps its row, because the book can be rented at that time, and can be added again.
"""

from __future__ import annotations

from typing import NamedTuple

from book_rental.settings import Connection
from outbox_events import Event, Handlers

PUT_BOOK = """
    insert into rental.book (id, title, author_id) values (%s, %s, %s)
    on conflict (id) do update set title = excluded.title, author_id = excluded.author_id, is_removed = false"""
PUT_AUTHOR = """
    insert into rental.author (id, name) values (%s, %s) on conflict (id) do update set name = excluded.name"""
# The row lock makes a second request for the book wait until the first one is committed or rolled back.
RESERVE = """
    update rental.book as book set rental_id = %s where id = %s and rental_id is null and not is_removed
    returning title, (select name from rental.author where id = book.author_id) as author"""


class Book(NamedTuple):
    """A book that can be rented."""

    title: str
    author: str | None
    """None while the author has not been received, because books and authors are in different topics."""


def register(handlers: Handlers[Connection]) -> None:
    """Register the handlers that keep the copy."""
    handlers.on("book_added", "book_changed")(put_book)
    handlers.on("book_removed")(remove_book)
    handlers.on("author_added", "author_changed")(put_author)
    handlers.on("author_removed")(remove_author)


def put_book(event: Event, connection: Connection) -> None:
    """Add or change a book. A rented book remains rented."""
    connection.execute(PUT_BOOK, [event.aggregate_id, event.value["title"], event.value["author_id"]])


def remove_book(event: Event, connection: Connection) -> None:
    """Mark a book as removed."""
    connection.execute("update rental.book set is_removed = true where id = %s", [event.aggregate_id])


def put_author(event: Event, connection: Connection) -> None:
    """Add or change an author."""
    connection.execute(PUT_AUTHOR, [event.aggregate_id, event.value["name"]])


def remove_author(event: Event, connection: Connection) -> None:
    """Remove an author. The author's books are removed by their own events."""
    connection.execute("delete from rental.author where id = %s", [event.aggregate_id])


def reserve(connection: Connection, book_id: str, rental_id: str) -> Book | str:
    """Reserve an available book for a rental; return the reason if that is not possible."""
    row = connection.execute(RESERVE, [rental_id, book_id]).fetchone()
    if row is not None:
        return Book(row["title"], row["author"])
    found = connection.execute("select from rental.book where id = %s and not is_removed", [book_id]).fetchone()
    return "no such book" if found is None else "book not available"


def release(connection: Connection, rental_id: str) -> None:
    """Make the book of a rental available."""
    connection.execute("update rental.book set rental_id = null where rental_id = %s", [rental_id])
