"""One writer of the workload: the kinds of transaction that it runs, and the ids that all writers share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from threading import Lock
from typing import Any
from uuid import UUID

import psycopg
from psycopg.errors import DeadlockDetected, SerializationFailure
from psycopg.rows import scalar_row

from outbox_kit.demo import library_service, samples

ROLLBACK_SHARE = 0.08  # of all transactions
RANDOM_STEPS = 20  # random steps to try, before a step that can always write a row


class Ids:
    """A thread-safe set of ids, with a random choice in constant time."""

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
        """Return at most `count` random ids in ascending order, the order in which all writers lock rows."""
        with self._lock:
            return sorted({rng.choice(self._ids) for _ in range(count)}) if self._ids else []

    def take(self, rng: Random) -> list[UUID]:
        """Remove a random id; return it in a list, which is empty if there are no ids."""
        with self._lock:
            keys = [rng.choice(self._ids)] if self._ids else []
            for key in keys:
                self._discard(key)
            return keys

    def _discard(self, key: UUID) -> None:
        if key in self._positions:
            position, last = self._positions.pop(key), self._ids.pop()
            if last != key:
                self._ids[position] = last
                self._positions[last] = position


@dataclass
class SharedIds:
    """Ids of committed and removed rows, shared by the writers. Another writer may have changed such a row since."""

    authors: Ids
    books: Ids
    removed_books: Ids

    @classmethod
    def load(cls, connection: psycopg.Connection[Any]) -> SharedIds:
        with psycopg.Cursor(connection, row_factory=scalar_row) as cursor:
            authors = cursor.execute("select id from library.author order by id").fetchall()
            books = cursor.execute("select id from library.book order by id").fetchall()
        return cls(Ids(authors), Ids(books), Ids([]))


IdUpdate = tuple[Callable[[UUID], None], UUID]


@dataclass
class Effects:
    """Numbers of events of one transaction by aggregate type, and updates of shared ids after commit or rollback."""

    states: Counter[str] = field(default_factory=Counter)
    tombstones: Counter[str] = field(default_factory=Counter)
    savepoint_rollbacks: int = 0
    on_commit: list[IdUpdate] = field(default_factory=list)
    on_rollback: list[IdUpdate] = field(default_factory=list)


class Writer:
    """Runs random transactions over one connection. A step returns False if it wrote no row.

    All steps lock authors before books, and books in ascending order, to avoid deadlocks.
    """

    def __init__(self, connection: psycopg.Connection[Any], rng: Random, shared_ids: SharedIds) -> None:
        self._connection = connection
        self._rng = rng
        self._shared_ids = shared_ids
        self._step_weights: dict[Callable[[Effects], bool], int] = {
            self._add_author: 8,
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
        """Run transactions until one writes a row; return the effects of this one and whether it was committed."""
        roll_back = self._rng.random() < ROLLBACK_SHARE
        steps = self._random_steps()
        while True:
            has_written, effects = self._attempt(next(steps), roll_back=roll_back)
            if has_written:
                return effects, not roll_back

    def _random_steps(self) -> Iterator[Callable[[Effects], bool]]:
        yield from self._rng.choices(list(self._step_weights), list(self._step_weights.values()), k=RANDOM_STEPS)
        yield self._add_author  # can always write a row

    def _attempt(self, step: Callable[[Effects], bool], *, roll_back: bool) -> tuple[bool, Effects]:
        effects, has_written = Effects(), False
        try:
            with self._connection.transaction():
                has_written = step(effects)
                if roll_back or not has_written:
                    raise psycopg.Rollback
        except (DeadlockDetected, SerializationFailure):  # conflict with another session: transact() tries another step
            has_written = False
        for update_ids, key in effects.on_commit if has_written and not roll_back else effects.on_rollback:
            update_ids(key)
        return has_written, effects

    def _add_author(self, effects: Effects) -> bool:
        self._new_author(effects)
        return True

    def _add_author_with_books(self, effects: Effects) -> bool:
        author_id = self._new_author(effects)
        return all(self._new_book(effects, author_id) for _ in range(self._rng.randint(1, 4)))

    def _add_book(self, effects: Effects) -> bool:
        return any(self._new_book(effects, author_id) for author_id in self._shared_ids.authors.choose(self._rng))

    def _change_author(self, effects: Effects) -> bool:
        for author_id in self._shared_ids.authors.choose(self._rng):
            if library_service.change_author(self._connection, author_id, **samples.author(self._rng)):
                effects.states["author"] += 1
        return bool(effects.states)

    def _change_books(self, effects: Effects) -> bool:
        for book_id in self._shared_ids.books.choose(self._rng, self._rng.choice((1, 1, 1, 2, 3))):
            if library_service.change_book(self._connection, book_id, **samples.book(self._rng)):
                effects.states["book"] += 1
        return bool(effects.states)

    def _change_book_twice(self, effects: Effects) -> bool:
        """Write two states of one book in one transaction: the later one must be in the targets."""
        for author_id in self._shared_ids.authors.choose(self._rng):
            for book_id in self._shared_ids.books.choose(self._rng):
                for _ in range(2):
                    # Setting author_id locks the author first. Otherwise the second update would lock it after the
                    # book: PostgreSQL checks the foreign key of a row that the same transaction has written.
                    fields = samples.book(self._rng)
                    fields["author_id"] = author_id
                    effects.states["book"] += library_service.change_book(self._connection, book_id, **fields)
        return bool(effects.states.total())

    def _change_after_savepoint_rollback(self, effects: Effects) -> bool:
        """Roll back to a savepoint, then change books in the same transaction."""
        with self._connection.transaction():
            self._new_author(Effects())
            raise psycopg.Rollback
        effects.savepoint_rollbacks += 1
        return self._change_books(effects)

    def _move_book(self, effects: Effects) -> bool:
        for author_id in self._shared_ids.authors.choose(self._rng):
            for book_id in self._shared_ids.books.choose(self._rng):
                if library_service.change_book(self._connection, book_id, author_id=author_id):
                    effects.states["book"] += 1
        return bool(effects.states)

    def _remove_book(self, effects: Effects) -> bool:
        for book_id in self._shared_ids.books.choose(self._rng):
            if library_service.remove_book(self._connection, book_id):
                self._count_removed_book(effects, book_id)
        return bool(effects.tombstones)

    def _remove_author(self, effects: Effects) -> bool:
        for author_id in self._shared_ids.authors.choose(self._rng):
            book_ids = library_service.remove_author(self._connection, author_id)
            if book_ids is None:
                continue
            effects.tombstones["author"] += 1
            effects.on_commit.append((self._shared_ids.authors.discard, author_id))
            for book_id in book_ids:
                self._count_removed_book(effects, book_id)
        return bool(effects.tombstones)

    def _replace_book(self, effects: Effects) -> bool:
        """Change, remove and re-create one book: the targets must have the last state, not the tombstone before it."""
        for author_id in self._shared_ids.authors.choose(self._rng):
            for book_id in self._shared_ids.books.choose(self._rng):
                # The change also locks the author, so that the new book can refer to it.
                if library_service.change_book(self._connection, book_id, author_id=author_id):
                    effects.states["book"] += 1
                    effects.tombstones["book"] += library_service.remove_book(self._connection, book_id)
                    self._new_book(effects, author_id, book_id)
        return bool(effects.tombstones)

    def _return_book(self, effects: Effects) -> bool:
        """Re-create a book that an earlier transaction removed, with the same id."""
        for author_id in self._shared_ids.authors.choose(self._rng):
            for book_id in self._shared_ids.removed_books.take(self._rng):
                effects.on_rollback.append((self._shared_ids.removed_books.add, book_id))
                self._new_book(effects, author_id, book_id)
        return bool(effects.states)

    def _new_author(self, effects: Effects) -> UUID:
        author_id = library_service.add_author(self._connection, **samples.author(self._rng))
        effects.states["author"] += 1
        effects.on_commit.append((self._shared_ids.authors.add, author_id))
        return author_id

    def _new_book(self, effects: Effects, author_id: UUID, key: UUID | None = None) -> bool:
        fields = samples.book(self._rng)
        fields["author_id"] = author_id
        book_id = library_service.add_book(self._connection, book_id=key, **fields)
        if book_id is None:
            return False
        effects.states["book"] += 1
        effects.on_commit.append((self._shared_ids.books.add, book_id))
        return True

    def _count_removed_book(self, effects: Effects, book_id: UUID) -> None:
        effects.tombstones["book"] += 1
        effects.on_commit.append((self._shared_ids.books.discard, book_id))
        effects.on_commit.append((self._shared_ids.removed_books.add, book_id))
