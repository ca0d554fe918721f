"""Define the errors of producers that send to Kafka alongside a database transaction."""

from __future__ import annotations

from confluent_kafka import KafkaError

from outbox_events.errors import RejectedError, UnreachableError


class NotDeliveredError(UnreachableError):
    """A record was not confirmed within the time limit. A producer without transactions can still deliver it later."""


class NotCommittedError(RejectedError):
    """The Kafka transaction did not commit, so consumers with read_committed do not receive its records."""


class UnknownOutcomeError(UnreachableError):
    """The outcome of a commit request is unknown. The transaction might be committed, or prepared in the database."""


class ProducerUnusableError(RejectedError):
    """The producer cannot be used again, for example because another producer with its transactional.id fenced it."""


FENCED_HINT = (
    "stop this process if another one with the same transactional.id has taken over; if the transaction was open for "
    "longer than transaction.timeout.ms, create another producer, then run the recovery"
)
UNUSABLE_HINT = "close the producer, create another one, then run the recovery"
FENCED_CODES = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


def hint_for(cause: KafkaError, otherwise: str) -> str:
    """Return the hint for a producer's error. If the producer can be used again, the hint is `otherwise`."""
    if cause.code() in FENCED_CODES:
        return FENCED_HINT
    return UNUSABLE_HINT if is_unusable(cause) else otherwise


def is_unusable(cause: KafkaError) -> bool:
    """Return whether the producer cannot be used again after this error."""
    return cause.fatal() or cause.code() in (*FENCED_CODES, KafkaError._FATAL)


def unusable(action: str, cause: KafkaError) -> ProducerUnusableError:
    """Return the error that reports a producer's fatal error."""
    message = f"cannot {action}: {cause.str()}"
    return ProducerUnusableError(message, hint_for(cause, UNUSABLE_HINT))
