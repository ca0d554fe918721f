"""Classify errors, and determine how a receiver reacts to them and when it retries."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import psycopg
from confluent_kafka import KafkaError, KafkaException

from outbox_events.errors import ConfigurationError, OutboxError, UnreachableError, WaitTimeoutError
from outbox_events.kafka.topic_requests import NO_LEADER, kafka_error
from outbox_events.producing.errors import NotCommittedError, NotDeliveredError, is_unusable
from outbox_events.receiving.function_bodies import require_body

# Connection, read-only after a failover, resources, shutdown and start of the server, and its file system.
SQLSTATES = ("08", "25006", "53", "57P", "58")
# Deadlock, serialization failure, lock_timeout, statement_timeout or a cancelled statement.
TRANSIENT = ("40P01", "40001", "55P03", "57014")
# A pooler has assigned another server session, whose prepared statements differ, or a timeout has ended the session.
OTHER_SESSION = ("26000", "42P05", "25P03", "25P04")
LIMIT_OF_STATEMENT = "53400"  # such as temp_file_limit
# Invalid authorization, catalog or schema name, undefined table, insufficient privilege, undefined column.
MISCONFIGURED = ("28", "3D", "3F", "42P01", "42501", "42703")
# The client marks a KafkaError as retriable only in transactions.
KAFKA_CODES = NO_LEADER | {
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
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.NOT_CONTROLLER,
    KafkaError.NOT_COORDINATOR,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.THROTTLING_QUOTA_EXCEEDED,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
}
MAX_EXPONENT = 30


def is_outage(error: BaseException) -> bool:
    """Return whether the error is an outage of PostgreSQL, Kafka or another system that outbox-kit calls.

    Errors of database drivers, including wrapped errors, are classified by SQLSTATE. An OperationalError without a
    SQLSTATE means a lost connection.
    """
    if is_database_error(error):
        state = sqlstate(error)
        return state.startswith(SQLSTATES) and state != LIMIT_OF_STATEMENT if state else _is_disconnect(error)
    if isinstance(error, KafkaException):
        return isinstance(error.args[0], KafkaError) and is_kafka_outage(error.args[0])
    if isinstance(error, NotDeliveredError) and isinstance(error.__cause__, KafkaException):
        cause_of_delivery = kafka_error(error.__cause__)
        return is_kafka_outage(cause_of_delivery) or is_unusable(cause_of_delivery)
    return isinstance(error, UnreachableError | NotCommittedError | WaitTimeoutError)


def needs_connection(error: BaseException) -> bool:
    """Return whether the next attempt needs another connection to the database."""
    return is_outage(error) or sqlstate(error) in OTHER_SESSION


def is_database_error(error: BaseException) -> bool:
    """Return whether psycopg, SQLAlchemy or a server of SQL raised the error."""
    is_wrapped = hasattr(error, "connection_invalidated")  # DBAPIError of SQLAlchemy
    return is_wrapped or isinstance(error, psycopg.Error) or bool(sqlstate(error))


def sqlstate(error: BaseException) -> str:
    """Return the SQLSTATE of an error of psycopg, psycopg2, pg8000 or asyncpg, wrapped or not, or an empty text."""
    cause = driver_error(error)
    fields = cause.args[0] if cause.args and isinstance(cause.args[0], dict) else {}  # pg8000: the server's message
    return str(getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None) or fields.get("C") or "")


def _is_disconnect(error: BaseException) -> bool:
    """Return whether an error without a SQLSTATE means that the connection failed or was lost."""
    cause = driver_error(error)
    is_operational = any(base.__name__ == "OperationalError" for base in type(cause).__mro__)
    # pg8000 raises InterfaceError from the OSError of the failed connection.
    is_lost = getattr(error, "connection_invalidated", False) or isinstance(cause.__cause__, OSError)
    return is_operational or is_lost


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
    TRANSIENT = "transient"
    """Retry without a limit, but apply other events. For example, a deadlock or a timeout has ended the transaction."""
    RECOVER = "recover"
    """Call the recoverer immediately, because retries cannot succeed."""
    STOP = "stop"
    """Stop the receiver before the event, because the cause is not an event and must be corrected first."""


def default_reaction(error: Exception) -> Reaction:
    """Return WAIT for outages, STOP for a wrong configuration, and RECOVER for unusable records.

    Errors of the database that often succeed after a retry, such as deadlocks and timeouts, are TRANSIENT.

    All other errors, including errors of HTTP clients, cause a RETRY. To wait for a dependency without a limit, pass
    your own function.
    """
    if is_outage(error):
        return Reaction.WAIT
    if sqlstate(error) in (*TRANSIENT, *OTHER_SESSION):
        return Reaction.TRANSIENT
    # A login, privilege, schema, table or column is missing, so the event is not the cause.
    if sqlstate(error).startswith(MISCONFIGURED) or isinstance(error, ConfigurationError):
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
        require_body(self.reaction)
        minimums = {"attempts": 1, "first_delay_s": 0, "factor": 1, "max_delay_s": 0, "jitter": 0}
        for name, minimum in minimums.items():
            require_at_least(minimum, name, getattr(self, name))
        if self.jitter > 1:
            raise ConfigurationError(f"jitter must be at most 1, not {self.jitter:g}")

    def reaction_to(self, error: Exception) -> Reaction:
        """Return the result of `reaction`. Raises ConfigurationError if it is not a Reaction."""
        reaction = self.reaction(error)
        if not isinstance(reaction, Reaction):
            message = f"the function `reaction` returned {reaction!r} for {type(error).__name__}"
            raise ConfigurationError(message, "return default_reaction(error) for all other errors") from error
        return reaction

    def delay_s(self, failures: int) -> float:
        """Return the delay in seconds after this number of failures of an event."""
        exponent = min(failures - 1, MAX_EXPONENT)
        delay = min(self.first_delay_s * self.factor**exponent, self.max_delay_s)
        return delay * (1 + random.uniform(-self.jitter, self.jitter))  # noqa: S311 - no secret


def require_at_least(minimum: float, name: str, value: float) -> None:
    """Raise ConfigurationError if `value` is NaN or less than `minimum`."""
    if not value >= minimum:
        raise ConfigurationError(f"{name} must be at least {minimum:g}, not {value:g}")
