"""Deliver records with a confluent-kafka producer, and determine the result of each record and Kafka transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NoReturn, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from outbox_events import limited_calls
from outbox_events.errors import RefusedError, UnreachableError
from outbox_events.kafka.record import Record
from outbox_events.kafka.topic_requests import kafka_error
from outbox_events.producing.errors import (
    NotCommittedError,
    NotDeliveredError,
    UnknownOutcomeError,
    hint_for,
    is_unusable,
    unusable,
)
from outbox_events.text import plural
from outbox_events.waiting import Deadline

DELIVERY_S = 30.0
"""Default time limit for each wait for the brokers."""
MIN_CALL_S = 1.0
ABORT_S = 5.0
POLL_S = 0.1
ANY_PARTITION = -1
FENCE_HINT = "check the brokers and the ACLs of the transactional.id"
T = TypeVar("T")


class Deliveries:
    """Records that were passed to a producer but are not yet confirmed. Not thread-safe."""

    def __init__(self, producer: Producer, *, seconds: float = DELIVERY_S, deadline: Deadline | None = None) -> None:
        """`seconds` limits each wait for the brokers. All waits together end at the `deadline`, if there is one."""
        self._producer = producer
        self._seconds = seconds
        self._deadline = deadline
        self._pending = 0
        self._topics: set[str] = set()
        self._failure: KafkaError | None = None  # not reported yet
        self.has_failed = False
        """Whether a record was not delivered."""

    def send(self, record: Record) -> None:
        """Add a record to the producer's queue.

        Raises NotDeliveredError if the queue remains full until the time limit, if the record is rejected, or if the
        producer cannot be used again.
        """
        deadline = self._deadline or Deadline(self._seconds)
        while True:
            try:
                self._produce(record)
            except BufferError:
                if not deadline.seconds_left:
                    message = f"topic {record.topic}: the producer's queue was full for {self._seconds:g} s"
                    raise NotDeliveredError(message, "check the brokers") from None
                self._poll()
            except KafkaException as error:
                self._poll(0)  # the producer may report only that the transaction failed, so raise the cause
                self._raise_failure()
                message = f"topic {record.topic}: the record was rejected: {kafka_error(error).str()}"
                raise NotDeliveredError(message, hint_for(kafka_error(error), _rejection_hint(error))) from error
            else:
                return

    def _produce(self, record: Record) -> None:
        self._producer.produce(
            record.topic,
            value=record.value,
            key=record.key,
            partition=ANY_PARTITION if record.partition is None else record.partition,
            headers=list(record.headers),
            on_delivery=self._delivered,
        )
        self._pending += 1
        self._topics.add(record.topic)

    def _poll(self, seconds: float = POLL_S) -> None:
        try:
            self._producer.poll(seconds)
        except (KafkaException, SystemError) as error:
            _raise_fatal(error)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        del message
        self._pending -= 1
        if error is not None:
            self._failure = self._failure or error
            self.has_failed = True

    def wait(self) -> None:
        """Wait until all records are confirmed.

        Raises NotDeliveredError if a record is not confirmed. If the brokers rejected it, the error has a cause. Each
        failure is raised once: later calls concern the records that are sent later.
        """
        try:
            _limited("deliver the records", self._producer.flush, self._deadline or Deadline(self._seconds))
        except (KafkaException, SystemError) as error:
            _raise_fatal(error)
        self._raise_failure()
        if self._pending:
            message = f"{plural(self._pending, 'record')} not confirmed within {self._seconds:g} s"
            topics = ", ".join(sorted(self._topics))
            hint = f"check that the brokers respond and that these topics exist: {topics}"
            raise NotDeliveredError(message, hint)

    def deliver(self, records: Iterable[Record]) -> None:
        """Send records, and wait until they are confirmed. Raises NotDeliveredError."""
        for record in records:
            self.send(record)
        self.wait()

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            message = f"a record was not delivered: {failure.str()}"
            raise NotDeliveredError(message, hint_for(failure, "check the topic and brokers")) from KafkaException(
                failure
            )


def _limited(action: str, function: Callable[[float], T], deadline: Deadline) -> T:
    """Call a function of the producer with the time left, at least MIN_CALL_S. Raises ClientStuckError."""
    seconds = max(deadline.seconds_left, MIN_CALL_S)
    return limited_calls.call(action, lambda: function(seconds), seconds=seconds + limited_calls.GRACE_S)


def _raise_fatal(error: KafkaException | SystemError) -> NoReturn:
    """Raise NotDeliveredError after the client raised a fatal error while running callbacks.

    If a delivery callback runs after the fatal error, a SystemError is raised instead. Its cause is the fatal error,
    unless the callback has cleared it.
    """
    cause = error if isinstance(error, KafkaException) else error.__cause__
    if not isinstance(cause, KafkaException):
        cause = KafkaException(KafkaError(KafkaError._FATAL))
    message = f"records were not delivered: {kafka_error(cause).str()}"
    raise NotDeliveredError(message, hint_for(kafka_error(cause), "check the topic and brokers")) from cause


def _rejection_hint(error: KafkaException) -> str:
    if kafka_error(error).code() == KafkaError._STATE:
        return "send a transactional producer's records inside a transaction"
    return "check its size and partition"


def fence(producer: Producer, *, seconds: float = DELIVERY_S) -> None:
    """Initialize a transactional producer, and end all earlier transactions of its transactional.id.

    Afterwards, an earlier producer with this transactional.id can no longer commit. Transactions whose commit had begun
    are committed, and all others are aborted. Call this function once per producer. Raises UnreachableError if the
    brokers do not respond, and ProducerUnusableError if the producer cannot be used again.
    """
    action = "initialize the transactions of the producer"
    try:
        _limited(action, producer.init_transactions, Deadline(seconds))
    except KafkaException as error:
        cause = kafka_error(error)
        if cause.retriable() and not is_unusable(cause):
            raise UnreachableError(f"cannot {action}: {cause.str()}", FENCE_HINT) from error
        raise unusable(action, cause) from error


class KafkaTransaction:
    """Open transaction of a transactional producer."""

    def __init__(self, producer: Producer, *, seconds: float = DELIVERY_S, is_total: bool = False) -> None:
        """Begin the transaction.

        `seconds` limits each wait for the brokers. If `is_total`, it limits all waits together, except that the commit
        waits for at least MIN_CALL_S, and the abort for at most ABORT_S.
        """
        self._producer = producer
        self._seconds = seconds
        self._deadline = Deadline(seconds) if is_total else None
        self._deliveries = Deliveries(producer, seconds=seconds, deadline=self._deadline)
        try:
            producer.begin_transaction()
        except KafkaException as error:
            cause = kafka_error(error)
            if cause.fatal():
                raise unusable("begin a Kafka transaction", cause) from error
            message = f"cannot begin a Kafka transaction: {cause.str()}"
            hint = "call fence(producer) once before the first transaction; after an unknown outcome, create a producer"
            raise RefusedError(message, hint) from error

    @property
    def seconds_left(self) -> float:
        """Time left until the common limit of all waits, at least MIN_CALL_S."""
        return max((self._deadline or Deadline(self._seconds)).seconds_left, MIN_CALL_S)

    def send(self, record: Record) -> None:
        """Send a record in the transaction. Consumers with read_committed receive the record after the commit."""
        self._deliveries.send(record)

    def flush(self) -> None:
        """Wait until the brokers have stored all records, so that only the commit remains. Raises NotDeliveredError."""
        self._deliveries.wait()

    def deliver(self, records: Iterable[Record]) -> None:
        """Send records, and wait until the brokers have stored them. Raises NotDeliveredError."""
        self._deliveries.deliver(records)

    def commit(self) -> None:
        """Commit the transaction. Raises NotCommittedError, or UnknownOutcomeError if Kafka might have committed.

        After an error, the outcome is certain only if a delivery failed, because the producer then does not send a
        commit request. A commit that timed out is retried until the time limit.
        """
        deadline = self._deadline or Deadline(self._seconds)
        while True:
            try:
                _limited("commit the Kafka transaction", self._producer.commit_transaction, deadline)
            except limited_calls.ClientStuckError as error:
                message = f"it is unknown whether the Kafka transaction committed: {error.message}"
                raise UnknownOutcomeError(message, error.hint) from error
            except KafkaException as error:
                cause = kafka_error(error)
                # Unless a delivery failed, the commit might have succeeded even if the error requires an abort.
                if cause.txn_requires_abort() and self._deliveries.has_failed:
                    message = f"the Kafka transaction did not commit: {cause.str()}"
                    raise NotCommittedError(message, "repeat the business transaction") from error
                # A fenced producer might have missed the response to a successful commit, so the outcome is unknown.
                if cause.retriable() and not cause.fatal() and deadline.seconds_left:
                    continue
                message = f"it is unknown whether the Kafka transaction committed: {cause.str()}"
                hint = hint_for(cause, "run the recovery, which reads the topic")
                raise UnknownOutcomeError(message, hint) from error
            else:
                return

    def abort(self) -> None:
        """Abort the transaction if the producer still can. Otherwise the broker aborts it after transaction.timeout.ms.

        Errors are ignored, because the caller reports why it aborts and the next transaction then cannot begin.
        """
        limit = Deadline(self._seconds if self._deadline is None else min(ABORT_S, self._seconds))
        with suppress(KafkaException, limited_calls.ClientStuckError):
            _limited("abort the Kafka transaction", self._producer.abort_transaction, limit)
