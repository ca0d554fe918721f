"""Transaction of a transactional producer, in which every outcome of a commit is distinguished."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from confluent_kafka import KafkaException, Producer

from outbox_events.errors import RefusedError
from outbox_events.kafka.record import Record
from outbox_events.kafka.topic_requests import kafka_error
from outbox_events.producing.delivery import DELIVERY_S, Deliveries
from outbox_events.producing.errors import NotCommittedError, UnknownOutcomeError, hint_for, unusable
from outbox_events.waiting import Deadline


def fence(producer: Producer, *, seconds: float = DELIVERY_S) -> None:
    """Initialise a transactional producer, and end every earlier transaction of its transactional.id.

    When it returns, an earlier producer with this transactional.id can no longer commit: a transaction whose commit
    had begun is committed, and any other is aborted. Call it once per producer.
    """
    try:
        producer.init_transactions(seconds)
    except KafkaException as error:
        raise unusable("initialise the transactions of the producer", kafka_error(error)) from error


class KafkaTransaction:
    """Open transaction of a transactional producer, and the records that were sent in it."""

    def __init__(self, producer: Producer, *, seconds: float = DELIVERY_S) -> None:
        """Begin the transaction. `seconds` limits each wait for the brokers."""
        self._producer = producer
        self._seconds = seconds
        self._deliveries = Deliveries(producer, seconds=seconds)
        self._is_rollback_only = False
        self.records: list[Record] = []
        try:
            producer.begin_transaction()
        except KafkaException as error:
            cause = kafka_error(error)
            if cause.fatal():
                raise unusable("begin a Kafka transaction", cause) from error
            message = f"cannot begin a Kafka transaction: {cause.str()}"
            hint = "call fence(producer) once before the first transaction; after an unknown outcome, create a producer"
            raise RefusedError(message, hint) from error

    def send(self, record: Record) -> None:
        """Send a record in the transaction. Consumers with read_committed receive it after the commit."""
        self._deliveries.send(record)
        self.records.append(record)

    @contextmanager
    def joined(self) -> Iterator[None]:
        """Run a nested block in this transaction. After an exception the transaction can only be rolled back.

        Kafka has no savepoints, so records of the nested block cannot be withdrawn separately.
        """
        try:
            yield
        except BaseException:
            self._is_rollback_only = True
            raise

    def flush(self) -> None:
        """Wait until the brokers have every record, so that only the commit remains.

        Raises NotDeliveredError, and RefusedError if a nested block has failed.
        """
        if self._is_rollback_only:
            raise RefusedError("a nested block has failed, and its records cannot be withdrawn from the transaction")
        self._deliveries.wait()

    def commit(self) -> None:
        """Commit. Raises NotCommittedError if it certainly did not commit, otherwise UnknownOutcomeError.

        Certain is only a failed delivery, after which the producer does not send the request to commit. A commit
        that ended with a timeout is continued by the next call, until the time limit.
        """
        deadline = Deadline(self._seconds)
        while True:
            try:
                self._producer.commit_transaction(max(deadline.seconds_left, 1.0))
            except KafkaException as error:
                cause = kafka_error(error)
                # Without a failed delivery, an error that requires an abort can follow a request that succeeded.
                if cause.txn_requires_abort() and self._deliveries.has_failed:
                    message = f"the Kafka transaction did not commit: {cause.str()}"
                    raise NotCommittedError(message, "repeat the business transaction") from error
                # A fenced producer may have lost the response to a commit that succeeded, so its outcome is unknown.
                if cause.retriable() and not cause.fatal() and deadline.seconds_left:
                    continue
                message = f"whether the Kafka transaction committed is unknown: {cause.str()}"
                hint = hint_for(cause, "run the recovery, which reads the topic")
                raise UnknownOutcomeError(message, hint) from error
            else:
                return

    def abort(self) -> None:
        """Abort, if the producer still can. Otherwise the broker aborts after transaction.timeout.ms.

        No error is raised, because the caller reports the reason for the abort, and the next begin fails.
        """
        with suppress(KafkaException):
            self._producer.abort_transaction(self._seconds)
