"""Send records with mistakes of service authors, which the drill must find. Without a mistake, this is a dual write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count

from confluent_kafka import Producer

from outbox_events import Deliveries, OutboxEvent
from outbox_events.kafka.record import Record
from outbox_lab.drill.senders.producing import DELIVERY_S, ProducingSender
from outbox_lab.drill.senders.sender import Connection, Send, Sender

DROPPED_SHARE = 500
MISTAKE_SHARE = 10


class Planted(ProducingSender):
    """Base class. Commits the database, then sends the records that `changed` returns."""

    def __init__(self, options: Mapping[str, str], name: str) -> None:
        super().__init__(options, name)
        self._numbers = count(1)

    @contextmanager
    def transaction(self, connection: Connection) -> Iterator[Send]:
        self.records: list[Record] = []

        def send(events: Sequence[OutboxEvent]) -> None:
            self.records.extend(map(self.record, events))
            self.in_block(connection)

        try:
            yield send
            connection.commit()
        except BaseException:
            connection.rollback()
            raise
        self.deliver([changed for record in self.records for changed in self.changed(record)])

    def in_block(self, connection: Connection) -> None:
        """Do something in the open transaction, after its records have been added to `records`."""

    def changed(self, record: Record) -> list[Record]:
        """Return the records that are sent in place of a record."""
        return [record]

    def deliver(self, records: Sequence[Record]) -> None:
        """Send records, and wait until they are delivered."""
        Deliveries(self.producer, seconds=DELIVERY_S).deliver(records)

    def is_mistaken(self) -> bool:
        """Return True for one of MISTAKE_SHARE calls."""
        return next(self._numbers) % MISTAKE_SHARE == 0


class RollsBackInBlock(Planted):
    """Rolls back in the block, as a function that is called there and handles its own errors can do."""

    def in_block(self, connection: Connection) -> None:
        if self.is_mistaken():
            connection.rollback()


class CommitsInBlock(Planted):
    """Commits in the block, so that a later error cannot roll back the change, but prevents the sending."""

    def in_block(self, connection: Connection) -> None:
        connection.commit()


class SendsInBlock(Planted):
    """Sends before the commit, so that records of transactions that are rolled back are delivered."""

    def in_block(self, connection: Connection) -> None:
        del connection
        self.deliver(self.records)
        self.records.clear()


class Drops(Planted):
    """Drops one of DROPPED_SHARE records of all writers of the process."""

    numbers = count(1)

    def changed(self, record: Record) -> list[Record]:
        return [] if next(self.numbers) % DROPPED_SHARE == 0 else [record]


class Duplicates(Planted):
    """Sends some records twice."""

    def changed(self, record: Record) -> list[Record]:
        return [record, record] if self.is_mistaken() else [record]


class Reorders(Planted):
    """Sends some records only after the next record of their key."""

    def __init__(self, options: Mapping[str, str], name: str) -> None:
        super().__init__(options, name)
        self._held: dict[bytes | None, Record] = {}

    def changed(self, record: Record) -> list[Record]:
        if record.key in self._held:
            return [record, self._held.pop(record.key)]
        if self.is_mistaken():
            self._held[record.key] = record
            return []
        return [record]


class SendsOldStateLast(Planted):
    """Sends the first record of a key again after each later one, as a retry of an error that is not ordered does."""

    def __init__(self, options: Mapping[str, str], name: str) -> None:
        super().__init__(options, name)
        self._first: dict[bytes | None, Record] = {}

    def changed(self, record: Record) -> list[Record]:
        first = self._first.setdefault(record.key, record)
        return [record] if first is record else [record, first]


class Mixes(Planted):
    """Base class. Passes some records together with the record before."""

    previous: Record | None = None

    def changed(self, record: Record) -> list[Record]:
        previous, self.previous = self.previous, record
        return [record if previous is None or not self.is_mistaken() else self.mixed(record, previous)]

    def mixed(self, record: Record, previous: Record) -> Record:
        """Return a record in which one part is that of the record before."""
        raise NotImplementedError


class WritesWrongKey(Mixes):
    """Sends some records with the key of the record before."""

    def mixed(self, record: Record, previous: Record) -> Record:
        return replace(record, key=previous.key)


class WritesWrongValue(Mixes):
    """Sends some records with the value of the record before."""

    def mixed(self, record: Record, previous: Record) -> Record:
        return replace(record, value=previous.value)


class UsesOtherPartitioner(Planted):
    """Sends with the default partitioner of librdkafka, which selects other partitions than Java clients."""

    def __init__(self, options: Mapping[str, str], name: str) -> None:
        super().__init__(options, name)
        self.producer = Producer({**self.client, "partitioner": "consistent_random"})


PLANTED_SENDERS: dict[str, tuple[type[Sender], str]] = {
    "rolls-back-in-block": (RollsBackInBlock, "undone"),
    "commits-in-block": (CommitsInBlock, "lost"),
    "sends-in-block": (SendsInBlock, "phantom"),
    "drops-records": (Drops, "lost"),
    "duplicates-records": (Duplicates, "duplicated"),
    "reorders-records": (Reorders, "unordered"),
    "sends-old-state-last": (SendsOldStateLast, "stale"),
    "writes-wrong-key": (WritesWrongKey, "wrong_key"),
    "writes-wrong-value": (WritesWrongValue, "wrong"),
    "uses-other-partitioner": (UsesOtherPartitioner, "misplaced"),
}
"""Mapping from the name of each mistake to its sender and to the count that must show the mistake."""
