"""Define a writer of the workload, its kinds of transactions, and the ids that all writers share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from threading import Lock
from uuid import UUID

import psycopg
from book_management import changes
from book_management.tables import Connection
from psycopg.errors import DeadlockDetected, ForeignKeyViolation, SerializationFailure
from psycopg.rows import scalar_row

from outbox_kit.demo import samples

ROLLBACK_SHARE = 0.08  # share of all transactions
RANDOM_STEPS = 20  # number of random steps to try before a step that can always write a row

CONFLICTS = (LookupError, ForeignKeyViolation, DeadlockDetected, SerializationFailure)
"""Errors that a step raises if its row does not exist, was deleted, or is locked by another session."""


class Ids:
    """A thread-safe set of ids that chooses a random id in constant time."""

    def __init__(self, ids: list[UUID]) -> None:
        self._lock = Lock()
        self._ids = ids
        self._positions = {key: position for position, key in enumerate(ids)}

    def add(self, key: UUID) -> None:
        with self._lock:
            if key not in self._positions:
                self._positions[key] = len(self._ids)
                self._ids.append(key)

    def discard(self, key: UUID) -> None:
        with self._lock:
            self._discard(key)

    def choose(self, rng: Random, count: int = 1) -> list[UUID]:
        """Return at most `count` random ids in ascending order, which is the order in which all writers lock rows.

        Raises LookupError if the set is empty.
        """
        with self._lock:
            return sorted({self._choose(rng) for _ in range(count)})

    def take(self, rng: Random) -> UUID:
        """Remove and return a random id. Raises LookupError if the set is empty."""
        with self._lock:
            key = self._choose(rng)
            self._discard(key)
            return key

    def _choose(self, rng: Random) -> UUID:
        if not self._ids:
            raise LookupError("no ids")
        return rng.choice(self._ids)

    def _discard(self, key: UUID) -> None:
        if key in self._positions:
            position, last = self._positions.pop(key), self._ids.pop()
            if last != key:
                self._ids[position] = last
                self._positions[last] = position


@dataclass
class SharedIds:
    """Ids of committed and removed rows, shared by all writers. Another writer can change these rows at any time."""

    authors: Ids
    books: Ids
    removed_books: Ids

    @classmethod
    def load(cls, connection: Connection) -> SharedIds:
        with psycopg.Cursor(connection, row_factory=scalar_row) as cursor:
            authors = cursor.execute("select id from library.author order by id").fetchall()
            books = cursor.execute("select id from library.book order by id").fetchall()
        return cls(Ids(authors), Ids(books), Ids([]))


IdUpdate = tuple[Callable[[UUID], None], UUID]


@dataclass
class Effects:
    """A transaction's event counts by aggregate type, and the shared ids to update after its commit or rollback."""

    states: Counter[str] = field(default_factory=Counter)
    tombstones: Counter[str] = field(default_factory=Counter)
    savepoint_rollbacks: int = 0
    on_commit: list[IdUpdate] = field(default_factory=list)
    on_rollback: list[IdUpdate] = field(default_factory=list)


Step = Callable[[Effects], object]


class Writer:
    """Runs random transactions over one connection. A step raises one of CONFLICTS if it cannot write its rows.

    To avoid deadlocks, all steps lock authors before books, and books in ascending order.
    """

    def __init__(self, connection: Connection, rng: Random, shared_ids: SharedIds) -> None:
        self._connection = connection
        self._rng = rng
        self._shared_ids = shared_ids
        self._step_weights: dict[Step, int] = {
            self._new_author: 8,
            self._add_author_with_books: 8,
            self._add_book: 22,
            self._change_author: 8,
            self._change_books: 24,
            self._change_book_twice: 6,
            self._change_after_savepoint_rollback: 4,
            self._move_book: 4,
            self._remove_book: 8,
            self._remove_author: 2,
            self._replace_book: 3,
            self._return_book: 3,
        }

    def transact(self) -> tuple[Effects, bool]:
        """Run transactions until one writes its rows. Return its effects, and whether it was committed."""
        roll_back = self._rng.random() < ROLLBACK_SHARE
        steps = self._random_steps()
        while True:
            effects = self._attempt(next(steps), roll_back=roll_back)
            if effects is not None:
                return effects, not roll_back

    def _random_steps(self) -> Iterator[Step]:
        yield from self._rng.choices(list(self._step_weights), list(self._step_weights.values()), k=RANDOM_STEPS)
        yield self._new_author  # can always write a row

    def _attempt(self, step: Step, *, roll_back: bool) -> Effects | None:
        effects, has_written = Effects(), True
        try:
            with self._connection.transaction():
                step(effects)
                if roll_back:
                    raise psycopg.Rollback
        except CONFLICTS:  # transact() tries another step
            has_written = False
        for update_ids, key in effects.on_commit if has_written and not roll_back else effects.on_rollback:
            update_ids(key)
        return effects if has_written else None

    def _add_author_with_books(self, effects: Effects) -> None:
        author_id = self._new_author(effects)
        for _ in range(self._rng.randint(1, 4)):
            self._new_book(effects, author_id)

    def _add_book(self, effects: Effects) -> None:
        self._new_book(effects, self._choose_author())

    def _change_author(self, effects: Effects) -> None:
        changes.change_author(self._connection, self._choose_author(), samples.author(self._rng))
        effects.states["author"] += 1

    def _change_books(self, effects: Effects) -> None:
        for book_id in self._shared_ids.books.choose(self._rng, self._rng.choice((1, 1, 1, 2, 3))):
            self._change_book(effects, book_id)

    def _change_book_twice(self, effects: Effects) -> None:
        """Write two states of one book in one transaction. The targets must contain the later state."""
        # Moving the book locks the author before the book. Otherwise the second change would lock the author later,
        # because PostgreSQL checks the foreign key of a row that the same transaction has written.
        _, book_id = self._move_book(effects)
        self._change_book(effects, book_id)

    def _change_after_savepoint_rollback(self, effects: Effects) -> None:
        """Roll back to a savepoint, then change books in the same transaction."""
        with self._connection.transaction():
            self._new_author(Effects())
            raise psycopg.Rollback
        effects.savepoint_rollbacks += 1
        self._change_books(effects)

    def _move_book(self, effects: Effects) -> tuple[UUID, UUID]:
        author_id, book_id = self._choose_author(), self._choose_book()
        changes.move_book(self._connection, book_id, author_id)
        effects.states["book"] += 1
        return author_id, book_id

    def _remove_book(self, effects: Effects) -> None:
        book_id = self._choose_book()
        changes.remove_book(self._connection, book_id)
        self._count_removed_book(effects, book_id)

    def _remove_author(self, effects: Effects) -> None:
        author_id = self._choose_author()
        book_ids = changes.remove_author(self._connection, author_id)
        effects.tombstones["author"] += 1
        effects.on_commit.append((self._shared_ids.authors.discard, author_id))
        for book_id in book_ids:
            self._count_removed_book(effects, book_id)

    def _replace_book(self, effects: Effects) -> None:
        """Change, remove and re-create one book. The targets must contain the book despite the earlier tombstone."""
        author_id, book_id = self._move_book(effects)  # also locks the author to which the new book refers
        changes.remove_book(self._connection, book_id)
        effects.tombstones["book"] += 1
        self._new_book(effects, author_id, book_id)

    def _return_book(self, effects: Effects) -> None:
        """Re-create a book that an earlier transaction removed. The book keeps its id."""
        author_id, book_id = self._choose_author(), self._shared_ids.removed_books.take(self._rng)
        effects.on_rollback.append((self._shared_ids.removed_books.add, book_id))
        self._new_book(effects, author_id, book_id)

    def _choose_author(self) -> UUID:
        return self._shared_ids.authors.choose(self._rng)[0]

    def _choose_book(self) -> UUID:
        return self._shared_ids.books.choose(self._rng)[0]

    def _new_author(self, effects: Effects) -> UUID:
        author_id = changes.add_author(self._connection, samples.author(self._rng))
        effects.states["author"] += 1
        effects.on_commit.append((self._shared_ids.authors.add, author_id))
        return author_id

    def _new_book(self, effects: Effects, author_id: UUID, key: UUID | None = None) -> None:
        book_id = changes.add_book(self._connection, author_id, samples.book(self._rng), key)
        effects.states["book"] += 1
        effects.on_commit.append((self._shared_ids.books.add, book_id))

    def _change_book(self, effects: Effects, book_id: UUID) -> None:
        changes.change_book(self._connection, book_id, samples.book(self._rng))
        effects.states["book"] += 1

    def _count_removed_book(self, effects: Effects, book_id: UUID) -> None:
        effects.tombstones["book"] += 1
        effects.on_commit.append((self._shared_ids.books.discard, book_id))
        effects.on_commit.append((self._shared_ids.removed_books.add, book_id))
