"""Copy of the books and authors of the book management, in the memory of the process."""

from __future__ import annotations

from typing import Any, NamedTuple

from book_rental.settings import Settings
from outbox_events import AvroValues, LatestState

# Only the fields that this service uses: new fields of the book management do not change it.
BOOK = {
    "type": "record",
    "name": "Book",
    "fields": [{"name": "title", "type": "string"}, {"name": "author_id", "type": "string"}],
}
AUTHOR = {"type": "record", "name": "Author", "fields": [{"name": "name", "type": "string"}]}


class Book(NamedTuple):
    """A book that can be rented."""

    title: str
    author: str | None
    """None while the author has not been received, because books and authors are in different topics."""


class Catalogue:
    """The latest state of each book and author."""

    def __init__(self, settings: Settings) -> None:
        self.books = _latest_state(settings, "books.book", BOOK)
        self.authors = _latest_state(settings, "books.author", AUTHOR)

    def follow(self) -> None:
        """Read what was written until now, then follow the topics in the background."""
        for states in (self.authors, self.books):
            states.load(seconds=60)
            states.follow()

    def find(self, book_id: str) -> Book | None:
        """Return a book; None if it does not exist. Raises StaleStateError if the copy may be outdated."""
        book = self.books.get(book_id)
        if book is None:
            return None
        author = self.authors.get(str(book["author_id"]))
        return Book(book["title"], author["name"] if author else None)

    def close(self) -> None:
        """Save the snapshots."""
        self.books.close()
        self.authors.close()


def _latest_state(settings: Settings, topic: str, schema: dict[str, Any]) -> LatestState:
    return LatestState(
        {"bootstrap.servers": settings.kafka},
        topic,
        decode=AvroValues(settings.registry, reader_schema=schema),
        snapshot=settings.snapshots / f"{topic}.snapshot",
    )
