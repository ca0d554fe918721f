"""Log every record that a consumer receives, and whether the row of its event was visible at that time."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from threading import Event as Flag
from threading import Lock, Thread
from types import TracebackType
from typing import Self

import fastavro
import psycopg
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from outbox_events.contract import wire_format
from outbox_events.contract.headers import EVENT_ID
from outbox_events.errors import UnreachableError
from outbox_events.kafka.record import text_headers
from outbox_events.kafka.topic_reader import READER_SETTINGS, REPORT_END, read_records
from outbox_events.text import plural
from outbox_events.waiting import Observation, wait_for
from outbox_kit.kafka.client import KafkaClient, client_settings
from outbox_kit.pipeline import Kafka
from outbox_lab.drill import accounts
from outbox_lab.drill.project import SCHEMA

BATCH_SIZE = 500
POLL_S = 0.1
METADATA_TIMEOUT_S = 30
CONNECT_TIMEOUT_S = 2
STOP_TIMEOUT_S = 30
NO_ERRORS = (KafkaError._PARTITION_EOF, KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._TIMED_OUT)
READ_OPTIONS = "-c statement_timeout=2s"
PARSED_SCHEMA = fastavro.parse_schema(SCHEMA)
QUIET_S = 5
END_S = 120


@dataclass(frozen=True, slots=True)
class Delivery:
    """One record that a consumer received.

    `is_early` is True if the row of the event was not visible yet, or None if this is unknown. `received_at` is in
    seconds since the epoch, or None if the time of receipt is unknown. `version` is the version of the state in the
    value, or None for a tombstone. `key` is the record key as text.
    """

    event_id: str
    partition: int
    offset: int
    received_at: float | None
    is_early: bool | None
    version: int | None
    key: str

    @property
    def position(self) -> tuple[int, int]:
        """Partition and offset, which together identify a record in a topic."""
        return self.partition, self.offset


class Observer:
    """Consumes a topic from its beginning in a thread during a `with` block. The isolation level is read_committed."""

    def __init__(self, kafka: Kafka, topic: str, dsn: str) -> None:
        self._kafka = kafka
        self._topic = topic
        self._dsn = dsn
        self._deliveries: list[Delivery] = []
        self._ids: set[str] = set()
        self._lock = Lock()
        self._stop = Flag()
        self._thread = Thread(target=self._run, name="observer", daemon=True)
        self._connection: psycopg.Connection[tuple[str]] | None = None
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        self._consumer = self._open_consumer()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(STOP_TIMEOUT_S)
        if self._connection is not None:
            self._connection.close()

    @property
    def deliveries(self) -> list[Delivery]:
        """Deliveries so far. Raises UnreachableError if an error ended the observer."""
        with self._lock:
            if self._error is not None:
                raise UnreachableError(f"the observer of topic {self._topic} ended: {self._error}") from self._error
            return list(self._deliveries)

    def missing(self, event_ids: Sequence[str]) -> int:
        """Return the number of these events that have not been delivered yet."""
        with self._lock:
            return sum(event_id not in self._ids for event_id in event_ids)

    def _open_consumer(self) -> Consumer:
        own = {"group.id": "outbox-drill", "auto.offset.reset": "error", "fetch.wait.max.ms": 20}
        consumer = Consumer({**client_settings(self._kafka), **READER_SETTINGS, **REPORT_END, **own})

        def poll() -> Observation[list[int]]:
            metadata = consumer.list_topics(self._topic, timeout=METADATA_TIMEOUT_S).topics[self._topic]
            # Brokers might not return the metadata of a new topic immediately.
            return Observation([*metadata.partitions] or None, str(metadata.error))

        partitions = wait_for(f"topic {self._topic}", poll, seconds=METADATA_TIMEOUT_S)
        consumer.assign([TopicPartition(self._topic, number, 0) for number in partitions])
        return consumer

    def _run(self) -> None:
        with closing(self._consumer):
            try:
                while not self._stop.is_set():
                    self._note([message for message in self._receive() if _is_record(message)])
            except BaseException as error:
                with self._lock:
                    self._error = error

    def _receive(self) -> list[Message]:
        """Wait for a message. Return it with the messages that have arrived by then, without waiting for others."""
        message = self._consumer.poll(POLL_S)
        return [] if message is None else [message, *self._consumer.consume(BATCH_SIZE, 0)]

    def _note(self, messages: list[Message]) -> None:
        if not messages:
            return
        received_at = time.time()
        deliveries = [delivery_of(message) for message in messages]
        event_ids = [delivery.event_id for delivery in deliveries]
        visible = self._visible(event_ids)
        with self._lock:
            for delivery in deliveries:
                is_early = None if visible is None else delivery.event_id not in visible
                self._deliveries.append(replace(delivery, received_at=received_at, is_early=is_early))
            self._ids.update(event_ids)

    def _visible(self, event_ids: list[str]) -> set[str] | None:
        """Return the ids of the events whose rows are visible, or None if the database does not respond."""
        try:
            if self._connection is None or self._connection.closed:
                self._connection = psycopg.connect(
                    self._dsn, autocommit=True, connect_timeout=CONNECT_TIMEOUT_S, options=READ_OPTIONS
                )
            return {row[0] for row in self._connection.execute(accounts.VISIBLE, (event_ids,)).fetchall()}
        except psycopg.Error:
            if self._connection is not None:
                self._connection.close()
            return None


def delivery_of(message: Message) -> Delivery:
    """Return a delivery with the event id, position, version and key of a record, without the time of receipt."""
    event_id = text_headers(message).get(EVENT_ID, "")
    position = message.partition() or 0, message.offset() or 0
    key, value = message.key() or b"", message.value()
    return Delivery(event_id, *position, None, None, version_of(value), key.decode(errors="replace"))


def _is_record(message: Message) -> bool:
    """Return whether a polled message is a record. Ignore a lost connection, because the client reconnects."""
    error = message.error()
    if error is not None and error.code() not in NO_ERRORS:
        raise KafkaException(error)
    return error is None


def version_of(value: bytes | None) -> int | None:
    """Return the version in an Avro or JSON value, or None for a tombstone. Raises ValueError for other values.

    Avro values are decoded with the schema of the drill, because the drill's pipelines do not use any other schema.
    """
    if value is None:
        return None
    if wire_format.schema_id(value) is None:
        return int(json.loads(value)["version"])
    state = fastavro.schemaless_reader(io.BytesIO(wire_format.body(value)), PARSED_SCHEMA, None)
    return int(state["version"])  # type: ignore[call-overload,index]


def read_deliveries(kafka: Kafka, topic: str) -> list[Delivery]:
    """Read a topic up to its current end, and return its committed records as deliveries without `received_at`.

    Raises UnreachableError and WaitTimeoutError.
    """
    deliveries: list[Delivery] = []
    ranges = {topic: KafkaClient(kafka).bounds(topic)}
    read_records(client_settings(kafka), ranges, lambda message: deliveries.append(delivery_of(message)))
    return deliveries


def complete(observer: Observer, kafka: Kafka, topic: str) -> tuple[list[Delivery], str]:
    """Return the records that the observer or a second reader received, and a note if the observer missed records.

    After a broker restart, a long-lived consumer might no longer receive records although these records are not lost.
    Therefore a new consumer reads the topic again.

    Raises UnreachableError. Raises WaitTimeoutError after END_S.
    """
    read = _read_until_end(observer, kafka, topic)
    observed = observer.deliveries
    count = len(missed(observed, read))
    note = f"the observer missed {plural(count, 'record')}, which a second reader read" if count else ""
    return merge(observed, read), note


def _read_until_end(observer: Observer, kafka: Kafka, topic: str) -> list[Delivery]:
    """Read the topic again until the observer has received all records, or no new record arrives for QUIET_S."""
    count = -1

    def poll() -> Observation[list[Delivery]]:
        nonlocal count
        read, before = read_deliveries(kafka, topic), count
        count = len(read)
        is_end = count == before or not missed(observer.deliveries, read)
        return Observation(read if is_end else None, f"{before} records, then {count}")

    return wait_for(f"the last record of topic {topic}", poll, seconds=END_S, interval=QUIET_S)


def missed(observed: Sequence[Delivery], read: Sequence[Delivery]) -> list[Delivery]:
    """Return the records that the second reader read but the observer did not receive."""
    positions = {delivery.position for delivery in observed}
    return [delivery for delivery in read if delivery.position not in positions]


def merge(observed: Sequence[Delivery], read: Sequence[Delivery]) -> list[Delivery]:
    """Return each record once, in order within each partition. Prefer the delivery that the observer logged."""
    deliveries: dict[tuple[int, int], Delivery] = {}
    for delivery in (*observed, *read):
        deliveries.setdefault(delivery.position, delivery)
    if missed(observed, read):
        return [deliveries[position] for position in sorted(deliveries)]
    return list(deliveries.values())
