"""Classify errors, and determine how a receiver reacts to them and when it retries."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import psycopg
from confluent_kafka import KafkaError, KafkaException

from outbox_events.errors import ConfigurationError, OutboxError, UnreachableError, WaitTimeoutError
from outbox_events.kafka.topic_requests import kafka_error
from outbox_events.producing.errors import NotCommittedError, NotDeliveredError, is_unusable

# Connection, read-only after a failover, resources, shutdown and start of the server, and its file system.
SQLSTATES = ("08", "25006", "53", "57P", "58")
LIMIT_OF_STATEMENT = "53400"  # such as temp_file_limit
# Invalid authorization, catalog or schema name, undefined table, insufficient privilege, undefined column.
MISCONFIGURED = ("28", "3D", "3F", "42P01", "42501", "42703")
# The client marks a KafkaError as retriable only in transactions.
KAFKA_CODES = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._TRANSPORT,
        KafkaError._WAIT_COORD,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_CONTROLLER,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
    }
)
MAX_EXPONENT = 30


def is_outage(error: BaseException) -> bool:
    """Return whether the error is an outage of PostgreSQL, Kafka or another system that outbox-kit calls.

    Errors of psycopg, including wrapped errors, are classified by SQLSTATE. A missing SQLSTATE means a lost connection.
    """
    cause = driver_error(error)
    if isinstance(cause, psycopg.Error):
        state = cause.sqlstate
        if state is None:
            return isinstance(cause, psycopg.OperationalError)
        return state.startswith(SQLSTATES) and state != LIMIT_OF_STATEMENT
    if isinstance(error, KafkaException):
        return isinstance(error.args[0], KafkaError) and is_kafka_outage(error.args[0])
    if isinstance(error, NotDeliveredError) and isinstance(error.__cause__, KafkaException):
        cause_of_delivery = kafka_error(error.__cause__)
        return is_kafka_outage(cause_of_delivery) or is_unusable(cause_of_delivery)
    return isinstance(error, UnreachableError | NotCommittedError | WaitTimeoutError)


def is_database_misconfigured(error: BaseException) -> bool:
    """Return whether a login, privilege, schema, table or column is missing. The event is then not the cause."""
    cause = driver_error(error)
    return isinstance(cause, psycopg.Error) and (cause.sqlstate or "").startswith(MISCONFIGURED)


def is_kafka_outage(error: KafkaError) -> bool:
    """Return whether the brokers are unreachable, or whether a later request can succeed."""
    return error.retriable() or error.code() in KAFKA_CODES


def driver_error(error: BaseException) -> BaseException:
    """Return the database driver's error if SQLAlchemy wrapped it, and otherwise the error itself."""
    return getattr(error, "orig", None) or error


class Reaction(Enum):
    """How the receiver reacts to an error."""

    RETRY = "retry"
    """Retry until the attempts are used up, then call the recoverer."""
    WAIT = "wait"
    """Retry without a limit, because the event is not the cause. For example, the database is unreachable."""
    RECOVER = "recover"
    """Call the recoverer immediately, because retries cannot succeed."""
    STOP = "stop"
    """Stop the receiver before the event, because the cause is not an event and must be corrected first."""


def default_reaction(error: Exception) -> Reaction:
    """Return WAIT for outages, STOP for a misconfigured database, and RECOVER for unusable records.

    All other errors, including errors of HTTP clients, cause a RETRY. To wait for a dependency without a limit, pass
    your own function.
    """
    if is_outage(error):
        return Reaction.WAIT
    if is_database_misconfigured(error):
        return Reaction.STOP
    if isinstance(error, OutboxError) and not error.transient:
        return Reaction.RECOVER
    return Reaction.RETRY


@dataclass(frozen=True)
class Retries:
    """Number of attempts and delays between them. The first delivery is an attempt, so 1 means no retries.

    The n-th delay is `first_delay_s` * `factor` ** (n - 1), at most `max_delay_s`, plus or minus the fraction `jitter`.
    Raises ConfigurationError if the numbers do not result in at least one attempt and valid delays.
    """

    attempts: int = 3
    first_delay_s: float = 0.5
    factor: float = 2.0
    max_delay_s: float = 60.0
    jitter: float = 0.2
    reaction: Callable[[Exception], Reaction] = default_reaction

    def __post_init__(self) -> None:
        minimums = {"attempts": 1, "first_delay_s": 0, "factor": 1, "max_delay_s": 0, "jitter": 0}
        for name, minimum in minimums.items():
            require_at_least(minimum, name, getattr(self, name))
        if self.jitter > 1:
            raise ConfigurationError(f"jitter must be at most 1, not {self.jitter:g}")

    def delay_s(self, failures: int) -> float:
        """Return the delay in seconds after this number of failures of an event."""
        exponent = min(failures - 1, MAX_EXPONENT)
        delay = min(self.first_delay_s * self.factor**exponent, self.max_delay_s)
        return delay * (1 + random.uniform(-self.jitter, self.jitter))  # noqa: S311 - no secret


def require_at_least(minimum: float, name: str, value: float) -> None:
    """Raise ConfigurationError if `value` is NaN or less than `minimum`."""
    if not value >= minimum:
        raise ConfigurationError(f"{name} must be at least {minimum:g}, not {value:g}")
