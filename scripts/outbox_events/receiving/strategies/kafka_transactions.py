"""Commit the records that handlers send together with the offsets, in Kafka transactions.

    strategy = KafkaTransactions({"bootstrap.servers": ..., "transactional.id": "statistics-0"})

    @handlers.on("book_lent")
    def announce(event: Event, transaction: KafkaTransaction) -> None:
        transaction.send(Record("library.loan", event.key, event.raw_value))

Only records that are sent through the transaction are delivered exactly once, and only to consumers with
read_committed. If a handler also writes to a database, the database commits separately, before Kafka, so these changes
are applied at least once. To combine database changes and records, use ProcessedEvents with the service's own outbox
table: see docs/receiving-strategies.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from outbox_events import limited_calls
from outbox_events.errors import ConfigurationError, OutboxError, RefusedError, UnreachableError
from outbox_events.kafka import offsets
from outbox_events.kafka.record import PRODUCER_SETTINGS
from outbox_events.kafka.topic_requests import kafka_error
from outbox_events.limited_calls import GRACE_S, ClientStuckError
from outbox_events.producing.deliveries import DELIVERY_S, KafkaTransaction, fence
from outbox_events.producing.errors import FENCED_CODES, NotCommittedError, ProducerUnusableError, UnknownOutcomeError
from outbox_events.receiving.event import Event
from outbox_events.receiving.recoverers import ReceiverStoppedError
from outbox_events.receiving.strategies.ended_transactions import refused
from outbox_events.receiving.strategy import BaseStrategy, Work

SETTINGS: Mapping[str, Any] = {
    "enable.auto.commit": False,  # offsets are committed in the transaction
    "isolation.level": "read_committed",  # on assignment, also wait for offsets in open transactions
}
ENDS = ("commit", "abort")
FENCED_HINT = "stop the other process with this transactional.id, then start again"
TRANSACTION_TIMEOUT_MS = 60_000  # the default of librdkafka
TIMEOUT_HINT = "set a smaller batch_size, or raise transaction.timeout.ms; then start again"
# The receiver retries and reports failed transactions, so the client's own messages would only repeat them.
LOG_SETTINGS: Mapping[str, Any] = {"log_level": 2}


class KafkaTransactions(BaseStrategy):
    """Consumes, transforms and produces. Handlers send records through the KafkaTransaction that is passed to them.

    After an unknown outcome, a new producer is created, and its initialization ends the old transaction. The committed
    offsets then show which events were applied. Those events count as duplicates and are not applied again. A recoverer
    such as DeadLetterTopic sends its record in the same transaction as the offset. The producer that is passed to
    DeadLetterTopic then only checks that the topic exists, and does not need a transactional.id.
    """

    def __init__(
        self,
        producer_settings: Mapping[str, Any],
        *,
        seconds: float = DELIVERY_S,
        create: Callable[[dict[str, Any]], Producer] = Producer,
    ) -> None:
        """`producer_settings` must contain a transactional.id that is unique per process and stable across restarts.

        `seconds` limits each wait for the brokers. `create` creates a producer from its settings.
        """
        if not producer_settings.get("transactional.id"):
            message = "transactional.id is missing in the settings of the producer"
            raise ConfigurationError(message, "set it to the group id and an instance number, such as statistics-0")
        self._settings = {**PRODUCER_SETTINGS, **LOG_SETTINGS, **producer_settings}
        self._timeout_s = int(self._settings.get("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS)) / 1000
        self._open_s = 0.0  # duration of the last transaction if it failed
        self._seconds = seconds
        self._create = create
        self._producer: Producer | None = None
        self._is_uncertain = False

    @property
    def settings(self) -> Mapping[str, Any]:
        """Consumer settings that are required to commit the offsets in the transaction."""
        return SETTINGS

    def bind(self, consumer: Consumer, settings: Mapping[str, Any]) -> None:
        """Create the producer, which ends open transactions of an earlier process with this transactional.id."""
        del settings  # the consumer provides the group
        self._offsets = TransactionOffsets(consumer, self._seconds)
        self._new_producer()

    def assigned(self, partitions: list[TopicPartition]) -> list[TopicPartition] | None:
        """Start at the group's committed offsets."""
        self._offsets.forget(partitions)
        return super().assigned(partitions)

    def revoked(self, partitions: list[TopicPartition]) -> None:
        """Discard the partitions. No transaction is open, because the receiver polls only between transactions."""
        self._offsets.forget(partitions)

    @contextmanager
    def transaction(self, events: Sequence[Event]) -> Iterator[Work[KafkaTransaction]]:
        """Yield a Kafka transaction, and commit its records together with the offsets after the events.

        Raises NotCommittedError, for example if the partitions now belong to another consumer. Raises
        UnknownOutcomeError, and ClientStuckError if the client does not respond. Raises ReceiverStoppedError if another
        producer with this transactional.id has taken over, or if the transaction exceeded transaction.timeout.ms.
        """
        with self._open() as transaction:
            duplicates = [event for event in events if self._offsets.is_committed(event)]
            new = [event for event in events if not self._offsets.is_committed(event)]
            with refused(transaction, *ENDS):
                yield Work(transaction, new, duplicates)
            self._commit(transaction, events)

    @contextmanager
    def recovery(self, event: Event) -> Iterator[KafkaTransaction]:
        """Yield a Kafka transaction, and commit the recoverer's records together with the offset after the event.

        The transaction is aborted if an earlier recovery with an unknown outcome has committed the event's offset.
        """
        with self._open() as transaction:
            with refused(transaction, *ENDS):
                yield transaction
            if self._offsets.is_committed(event):
                transaction.abort()
            else:
                self._commit(transaction, [event])

    def close(self) -> None:
        """Close the producer."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()  # otherwise its deallocation would wait for the brokers

    @contextmanager
    def _open(self) -> Iterator[KafkaTransaction]:
        """Begin a transaction, and abort it after an exception. If necessary, read the committed offsets first."""
        transaction, began = self._begin(), time.monotonic()
        self._open_s = 0.0
        try:
            if self._is_uncertain:
                self._offsets.read_committed()
                self._is_uncertain = False
            yield transaction
        except ClientStuckError:
            self._producer = None  # close() must not call it, because a call in another thread still uses it
            raise
        except BaseException as error:
            self._open_s = time.monotonic() - began
            transaction.abort()
            if isinstance(error, UnknownOutcomeError):
                self._stop_if_fenced(error)
            raise

    def _begin(self) -> KafkaTransaction:
        """Begin a transaction, with a new producer if the last one cannot be used."""
        try:
            return KafkaTransaction(self._producer or self._new_producer(), seconds=self._seconds)
        except (ProducerUnusableError, RefusedError) as error:
            self._stop_if_fenced(error)
            return KafkaTransaction(self._new_producer(), seconds=self._seconds)

    def _commit(self, transaction: KafkaTransaction, events: Sequence[Event]) -> None:
        transaction.flush()
        assert self._producer is not None  # noqa: S101 - for the type checker
        self._offsets.send(self._producer, events)
        self._is_uncertain = True  # also if an interrupt occurs between the commit and the next line
        transaction.commit()
        self._is_uncertain = False

    def _new_producer(self) -> Producer:
        """Replace the producer. This commits the last transaction if its commit had begun, and otherwise aborts it."""
        self.close()
        self._is_uncertain = True
        producer = self._create(self._settings)
        try:
            fence(producer, seconds=self._seconds)
        except ProducerUnusableError as error:
            self._stop_if_fenced(error)
            raise UnreachableError(error.message, "check the brokers and the ACLs of the transactional.id") from error
        self._producer = producer
        return producer

    def _stop_if_fenced(self, error: OutboxError) -> None:
        """Raise ReceiverStoppedError if the producer was fenced, instead of fencing others with a new producer."""
        cause = error.__cause__
        if not (isinstance(cause, KafkaException) and kafka_error(cause).code() in FENCED_CODES):
            return
        if self._open_s < self._timeout_s:
            raise ReceiverStoppedError(f"another producer has taken over: {error.message}", FENCED_HINT) from error
        message = f"a transaction was open for {self._open_s:.0f} s, longer than transaction.timeout.ms"
        raise ReceiverStoppedError(f"{message} ({self._timeout_s:g} s): {error.message}", TIMEOUT_HINT) from error


class TransactionOffsets:
    """Adds offsets to transactions, and keeps the committed offsets in order to recognize duplicates."""

    def __init__(self, consumer: Consumer, seconds: float) -> None:
        self._consumer = consumer
        self._seconds = seconds
        self._committed: dict[tuple[str, int], int] = {}

    def read_committed(self) -> None:
        """Read the committed offsets of the assigned partitions. Waits for transactions that are being completed."""
        self._committed = offsets.committed(self._consumer, self._consumer.assignment(), self._seconds)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Discard the committed offsets of partitions that were assigned or revoked."""
        for partition in partitions:
            self._committed.pop((partition.topic, partition.partition), None)

    def is_committed(self, event: Event) -> bool:
        """Return whether a transaction that contained this event had been committed when the offsets were read."""
        return event.offset < self._committed.get(event.source, 0)

    def send(self, producer: Producer, events: Sequence[Event]) -> None:
        """Add the offsets after these events, with the consumer's group generation, to the open transaction.

        Raises NotCommittedError, for example if the group has assigned the partitions to another consumer. Raises
        ClientStuckError if the client does not keep the time limit, as after a crash of the group's coordinator
        (https://github.com/confluentinc/librdkafka/issues/5456).
        """
        ends = {event.source: event.offset + 1 for event in events}
        places = [
            TopicPartition(*source, max(end, self._committed.get(source, 0)))  # duplicates must not rewind the offset
            for source, end in ends.items()
        ]
        metadata = self._consumer.consumer_group_metadata()
        # After a consumer has left the group, its metadata has no member id, so the broker cannot fence it. A consumer
        # rejoins only while it polls, so if this check passes, the metadata is from a member or is refused.
        if not self._consumer.memberid():
            message = "the consumer has left the group, so the offsets cannot be committed"
            raise NotCommittedError(message, "raise max.poll.interval.ms, or set a smaller batch_size")
        try:
            send = partial(producer.send_offsets_to_transaction, places, metadata, self._seconds)
            limited_calls.call("add offsets to a transaction", send, seconds=self._seconds + GRACE_S)
        except KafkaException as error:
            message = f"offsets cannot be added to the Kafka transaction: {kafka_error(error).str()}"
            raise NotCommittedError(message, "the current owner of the partitions receives the events again") from error
