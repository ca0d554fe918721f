"""Which errors have another cause than an event: outages, which end by themselves, and a misconfigured database."""

from __future__ import annotations

import psycopg
from confluent_kafka import KafkaError, KafkaException

from outbox_events.errors import UnreachableError, WaitTimeoutError
from outbox_events.kafka.client_errors import kafka_error
from outbox_events.producing.errors import NotCommittedError, NotDeliveredError, is_unusable

# Connection, read-only after a failover, resources, shutdown and start of the server, its file system.
SQLSTATES = ("08", "25006", "53", "57P", "58")
LIMIT_OF_STATEMENT = "53400"  # such as temp_file_limit
# Invalid authorization, catalog or schema name, undefined table, insufficient privilege, undefined column.
MISCONFIGURED = ("28", "3D", "3F", "42P01", "42501", "42703")
# A KafkaError of the client is not marked as retriable, except in transactions.
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


def is_outage(error: BaseException) -> bool:
    """Return whether the error is an outage of PostgreSQL, Kafka or another system that outbox-kit calls.

    Errors of psycopg, which SQLAlchemy wraps, are distinguished by their SQLSTATE. Without one, the connection failed.
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
    """Return whether a login, privilege, schema, table or column is missing, whatever the event contains."""
    cause = driver_error(error)
    return isinstance(cause, psycopg.Error) and (cause.sqlstate or "").startswith(MISCONFIGURED)


def is_kafka_outage(error: KafkaError) -> bool:
    """Return whether the brokers cannot be reached, or will respond to a later request."""
    return error.retriable() or error.code() in KAFKA_CODES


def driver_error(error: BaseException) -> BaseException:
    """Return the error of the database driver, if SQLAlchemy has wrapped one; otherwise the error."""
    return getattr(error, "orig", None) or error
