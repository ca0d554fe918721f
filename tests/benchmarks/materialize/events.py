"""Records of the worked example's book as outbox-kit writes them: text key, source_sequence, Avro in Confluent framing.

    Books(keys=300_000, schema_id=1).produce(kafka, "bench.book", 3_000_000)

Encoding each event would take longer than sending it, so values are assembled: the fields that name the book are
written by hand, the remaining fields are taken in turn from SHAPES, which were encoded once.
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
SHAPES = 997
TOMBSTONES = 50
"""One event in so many deletes its book."""
NAMED = ("id", "author_id")
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
    """The key of a book: a UUID as text, the same for the same number."""
    digest = hashlib.md5(b"%d" % number, usedforsecurity=False).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-4{digest[13:16]}-a{digest[17:20]}-{digest[20:]}".encode()


class Books:
    """A stock of books, and the events that change them, always the same ones in the same order."""

    def __init__(self, keys: int, schema_id: int) -> None:
        self._keys = [book_key(number) for number in range(keys)]
        self._frame = b"\x00" + struct.pack(">I", schema_id)
        self._rest = list(_rests())
        self._random = random.Random(keys)  # noqa: S311 - the same every time
        self._written = 0

    def events(self, count: int) -> Iterator[tuple[bytes, bytes | None, bytes]]:
        """Events of random books: key, value (None: a tombstone), source_sequence."""
        choose = self._random.randrange
        for _ in range(count):
            number = choose(len(self._keys))
            deleted = choose(TOMBSTONES) == 0
            yield self._event(number, deleted=deleted)

    def first_events(self) -> Iterator[tuple[bytes, bytes | None, bytes]]:
        """One event for each book."""
        return (self._event(number) for number in range(len(self._keys)))

    def _event(self, number: int, *, deleted: bool = False) -> tuple[bytes, bytes | None, bytes]:
        self._written += 1
        written, key = self._written, self._keys[number]
        sequence = b"0000_%016x-%016x" % (written // 7, written)
        if deleted:
            return key, None, sequence
        author = self._keys[number // 7]
        # 36 characters: the length 0x48 in Avro's zigzag.
        return key, self._frame + b"\x48" + key + b"\x48" + author + self._rest[written % SHAPES], sequence

    def markers(self, partitions: int) -> list[tuple[bytes, bytes, bytes]]:
        """One more book for each partition, to be sent last: when a sink shows them, it shows all before them."""
        created = []
        for partition in range(partitions):
            self._written += 1
            key = marker_key(partition)
            sequence = b"0000_%016x-%016x" % (self._written // 7, self._written)
            created.append((key, self._frame + b"\x48" + key + b"\x48" + key + self._rest[0], sequence))
        return created


def marker_key(partition: int) -> bytes:
    """No digest has so many zeros."""
    return b"00000000-0000-4000-a000-%012d" % partition


def _rests() -> Iterator[bytes]:
    """Encoded fields after those that name the book."""
    schema: dict[str, Any] = json.loads(SCHEMA.read_text(encoding="utf-8"))
    assert tuple(field["name"] for field in schema["fields"][: len(NAMED)]) == NAMED
    rest = fastavro.parse_schema({**schema, "fields": schema["fields"][len(NAMED) :]})
    start = datetime(2026, 1, 1, tzinfo=UTC)
    for number in range(SHAPES):
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
        fastavro.schemaless_writer(body, rest, book)
        yield body.getvalue()


class Sender:
    """Send events to a topic; `with` waits until the broker has acknowledged them, and raises if one was rejected."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self._producer = Producer({**client_settings(kafka), **PRODUCER})
        self._topic = topic
        self._refused: KafkaError | None = None

    def __enter__(self) -> Sender:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        left = self._producer.flush(FLUSH_SECONDS)
        if kind is None and (left or self._refused is not None):
            raise RuntimeError(f"{self._topic}: {left} events were not sent; {self._refused}")

    def send(self, events: Iterator[tuple[bytes, bytes | None, bytes]]) -> None:
        """Send, each to the partition of its key."""
        produce, topic = self._producer.produce, self._topic
        for number, (key, value, sequence) in enumerate(events):
            while True:
                try:
                    produce(topic, value, key, headers=[("source_sequence", sequence)], on_delivery=self._answered)
                    break
                except BufferError:
                    self._producer.poll(0.1)
            if number % 10_000 == 0:
                self._producer.poll(0)

    def send_to(self, partition: int, key: bytes, value: bytes, sequence: bytes) -> None:
        """Send one event to a partition, after all that were sent before."""
        self._producer.flush(FLUSH_SECONDS)
        headers: list[tuple[str, str | bytes | None]] = [("source_sequence", sequence)]
        self._producer.produce(self._topic, value, key, partition, headers=headers, on_delivery=self._answered)

    def _answered(self, error: KafkaError | None, _: Message) -> None:
        self._refused = self._refused or error
