"""Records of the worked example's book as outbox-kit writes them: text key, source_sequence, Avro in Confluent framing.

    with Sender(kafka, "bench.book") as sender:
        sender.send(Books(keys=300_000, schema_id=1).events(3_000_000))

Encoding each event would take longer than sending it. Therefore only the fields with ids are encoded per event. The
other fields are taken in turn from ENCODED_BODIES bodies that are encoded once.
"""

from __future__ import annotations

import hashlib
import io
import json
import random
import struct
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import fastavro
from confluent_kafka import KafkaError, Message, Producer
from tests.conftest import REPOSITORY

from outbox_kit.kafka.client import client_settings
from outbox_kit.pipeline import Kafka

SCHEMA = REPOSITORY / "schemas" / "book.avsc"
ENCODED_BODIES = 997
EVENTS_PER_TOMBSTONE = 50
"""On average."""
ID_FIELDS = ("id", "author_id")
FLUSH_SECONDS = 120
TITLES = ("The Left Hand of Darkness", "One Hundred Years of Solitude", "Il nome della rosa")
PRODUCER = {
    "partitioner": "murmur2_random",
    "compression.type": "lz4",
    "linger.ms": 50,
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 512_000,
    "enable.idempotence": True,
}


def book_key(number: int) -> bytes:
    """Return the key of a book: a UUID as text, derived from the number."""
    digest = hashlib.md5(b"%d" % number, usedforsecurity=False).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-4{digest[13:16]}-a{digest[17:20]}-{digest[20:]}".encode()


class Books:
    """Generator of events of random books. The sequence of events is the same in every run."""

    def __init__(self, keys: int, schema_id: int) -> None:
        self._keys = [book_key(number) for number in range(keys)]
        self._frame = b"\x00" + struct.pack(">I", schema_id)
        self._bodies = list(_encoded_bodies())
        self._random = random.Random(keys)  # noqa: S311 - repeatable
        self._written = 0

    def events(self, count: int) -> Iterator[tuple[bytes, bytes | None, bytes]]:
        """Yield events of random books as key, value (None for a tombstone) and source_sequence."""
        choose = self._random.randrange
        for _ in range(count):
            number = choose(len(self._keys))
            deleted = choose(EVENTS_PER_TOMBSTONE) == 0
            yield self._event(number, deleted=deleted)

    def first_events(self) -> Iterator[tuple[bytes, bytes | None, bytes]]:
        """Return one event for each book."""
        return (self._event(number) for number in range(len(self._keys)))

    def _event(self, number: int, *, deleted: bool = False) -> tuple[bytes, bytes | None, bytes]:
        self._written += 1
        written, key = self._written, self._keys[number]
        sequence = b"0000_%016x-%016x" % (written // 7, written)
        if deleted:
            return key, None, sequence
        author = self._keys[number // 7]
        # The key has 36 characters, a length that Avro's zigzag encoding represents as 0x48.
        return key, self._frame + b"\x48" + key + b"\x48" + author + self._bodies[written % ENCODED_BODIES], sequence

    def markers(self, partitions: int) -> list[tuple[bytes, bytes, bytes]]:
        """Return one book per partition, to be sent last. A sink with these books has applied all earlier events."""
        created = []
        for partition in range(partitions):
            self._written += 1
            key = marker_key(partition)
            sequence = b"0000_%016x-%016x" % (self._written // 7, self._written)
            created.append((key, self._frame + b"\x48" + key + b"\x48" + key + self._bodies[0], sequence))
        return created


def marker_key(partition: int) -> bytes:
    """Return the key of the marker; it differs from all keys of book_key()."""
    return b"00000000-0000-4000-a000-%012d" % partition


def _encoded_bodies() -> Iterator[bytes]:
    """Yield the encoded fields that follow ID_FIELDS."""
    schema: dict[str, Any] = json.loads(SCHEMA.read_text(encoding="utf-8"))
    assert tuple(field["name"] for field in schema["fields"][: len(ID_FIELDS)]) == ID_FIELDS
    body_schema = fastavro.parse_schema({**schema, "fields": schema["fields"][len(ID_FIELDS) :]})
    start = datetime(2026, 1, 1, tzinfo=UTC)
    for number in range(ENCODED_BODIES):
        body = io.BytesIO()
        book = {
            "title": TITLES[number % 3],
            "subtitle": f"Part {number % 9}" if number % 2 else None,
            "tags": ["history"] * (number % 3),
            "price": Decimal(1000 + number) / 100,
            "published_on": date(1900, 1, 1) + timedelta(days=number * 31),
            "status": ("AVAILABLE", "LENT", "LOST")[number % 3],
            "pages": 100 + number,
            "updated_at": start + timedelta(seconds=number),
        }
        fastavro.schemaless_writer(body, body_schema, book)
        yield body.getvalue()


class Sender:
    """Send events to a topic. `with` waits until the broker has acknowledged them, and raises if it rejected one."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self._producer = Producer({**client_settings(kafka), **PRODUCER})
        self._topic = topic
        self._delivery_error: KafkaError | None = None

    def __enter__(self) -> Sender:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        unsent = self._producer.flush(FLUSH_SECONDS)
        if kind is None and (unsent or self._delivery_error is not None):
            raise RuntimeError(f"{self._topic}: {unsent} events were not sent; {self._delivery_error}")

    def send(self, events: Iterator[tuple[bytes, bytes | None, bytes]]) -> None:
        """Send each event to the partition of its key."""
        produce, topic = self._producer.produce, self._topic
        for number, (key, value, sequence) in enumerate(events):
            while True:
                try:
                    produce(topic, value, key, headers=[("source_sequence", sequence)], on_delivery=self._on_delivery)
                    break
                except BufferError:
                    self._producer.poll(0.1)
            if number % 10_000 == 0:
                self._producer.poll(0)

    def send_to(self, partition: int, key: bytes, value: bytes, sequence: bytes) -> None:
        """Send one event to a partition, after all events that were sent earlier."""
        self._producer.flush(FLUSH_SECONDS)
        headers: list[tuple[str, str | bytes | None]] = [("source_sequence", sequence)]
        self._producer.produce(self._topic, value, key, partition, headers=headers, on_delivery=self._on_delivery)

    def _on_delivery(self, error: KafkaError | None, _: Message) -> None:
        self._delivery_error = self._delivery_error or error
