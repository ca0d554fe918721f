"""Send a bucket's records with a transactional producer. The bucket's transactional.id fences the former owner."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from confluent_kafka import KafkaError, KafkaException, Producer

from outbox_events.errors import RejectedError, UnreachableError
from outbox_events.kafka.record import PRODUCER_SETTINGS, Record
from outbox_events.kafka.topic_requests import ClientErrors
from outbox_events.waiting import Deadline
from outbox_kit.kafka.client import client_settings
from outbox_kit.pipeline import Kafka

PARTITIONER = -1
"""Partition number that makes librdkafka call the partitioner."""
STEP_S = 2.0
"""Time limit of each call of the client."""
MIN_STEP_S = 0.001
SEND_TIMEOUT_S = 60
TRANSACTION_TIMEOUT_MS = 60_000
# The encoder limits key, value and headers to 1,000,000 bytes. librdkafka's limit also includes the framing.
MAX_MESSAGE_BYTES = 1_100_000


class BucketProducer:
    """Sends the records of one bucket. Each batch is one transaction."""

    def __init__(self, kafka: Kafka, transactional_id: str, keep_lease: Callable[[], None]) -> None:
        """Begin the initialization. While records are added, `keep_lease` is called at least every STEP_S."""
        self._id, self._keep_lease = transactional_id, keep_lease
        self._errors = ClientErrors()
        self._producer = Producer(
            {
                **client_settings(kafka, self._errors),
                **PRODUCER_SETTINGS,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "message.max.bytes": MAX_MESSAGE_BYTES,
                "linger.ms": 5,
            }
        )
        self._is_initialized = False
        with suppress(KafkaException):  # runs in the background; initialize() raises its error
            self._producer.init_transactions(MIN_STEP_S)

    def initialize(self) -> None:
        """Wait until former owners of the bucket are fenced. Raises UnreachableError, RejectedError."""
        if not self._is_initialized:
            self._wait("initialize", self._producer.init_transactions)
            self._is_initialized = True

    def send(self, records: Sequence[Record]) -> None:
        """Send the records in a new transaction and leave it open. After an error, the transaction is aborted.

        Raises UnreachableError, RejectedError, and errors of `keep_lease`.
        """
        with self._aborted_after_errors("send"):
            self._producer.begin_transaction()
            for record in records:
                self._keep_lease()
                self._produce(record)

    def commit(self) -> None:
        """Commit the transaction, or abort it after an error. Raises UnreachableError, RejectedError.

        After a timeout, the outcome is unknown. After any other error, the transaction is not committed.
        """
        self._wait("commit", self._producer.commit_transaction)

    @contextmanager
    def _aborted_after_errors(self, action: str) -> Iterator[None]:
        """Abort the open transaction after an error, so that consumers do not have to wait for its timeout."""
        try:
            yield
        except Exception as error:
            with suppress(KafkaException):
                self._producer.abort_transaction(STEP_S)
            raise (self._failed(action, error.args[0]) if isinstance(error, KafkaException) else error) from None

    def _produce(self, record: Record) -> None:
        """Add a record to the queue. Wait while the queue is full: a batch can exceed the producer's queue (1 GiB)."""
        deadline = Deadline(SEND_TIMEOUT_S)
        while True:
            try:
                return self._producer.produce(
                    record.topic,
                    key=record.key,
                    value=record.value,
                    headers=list(record.headers),
                    partition=PARTITIONER if record.partition is None else record.partition,
                )
            except BufferError:
                if not deadline.seconds_left:
                    raise UnreachableError(f"the producer queue of {self._id} is full", "check the brokers") from None
                self._producer.poll(STEP_S)
                self._keep_lease()

    def _wait(self, action: str, step: Callable[[float], None]) -> None:
        """Repeat `step` until it succeeds. After a timeout, the next call continues the same operation."""
        deadline = Deadline(SEND_TIMEOUT_S)
        with self._aborted_after_errors(action):
            while True:
                try:
                    return step(STEP_S)
                except KafkaException as error:
                    if not error.args[0].retriable() or not deadline.seconds_left:
                        raise

    def _failed(self, action: str, error: KafkaError) -> Exception:
        cause = f"; {self._errors.cause}" if self._errors.cause else ""
        message = f"cannot {action} the Kafka transaction of {self._id}: {error.str()}{cause}"
        if error.retriable():
            return UnreachableError(message, "check kafka.bootstrap_servers, kafka.client and the brokers")
        return RejectedError(message, "check the topics (`outbox plan`) and the ACLs of the transactional id")
