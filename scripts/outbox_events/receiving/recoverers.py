"""Define recoverers, which dispose of events that could not be handled."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path
from traceback import extract_tb
from typing import Any, Protocol

from confluent_kafka import KafkaException, Producer

from outbox_events.contract import dead_letter_headers
from outbox_events.errors import ConfigurationError, OutboxError, RejectedError
from outbox_events.kafka.record import Record
from outbox_events.producing.deliveries import DELIVERY_S, Deliveries, KafkaTransaction
from outbox_events.receiving.event import Event
from outbox_events.receiving.retries import driver_error, is_database_error, is_outage, sqlstate
from outbox_events.text import plural

log = logging.getLogger("outbox_events.receiving")
MAX_MESSAGE_LENGTH = 500
DRIVER = frozenset({"psycopg", "psycopg_binary", "psycopg_c", "psycopg2", "pg8000", "sqlalchemy"})
UNDEFINED_TABLE, INSUFFICIENT_PRIVILEGE = "42P01", "42501"


class AlreadyAppliedError(RejectedError):
    """The position of the partition is already after the event, so recovery is not needed."""


class ReceiverStoppedError(RejectedError):
    """An event could not be handled, so the receiver stopped before the event."""


@dataclass(frozen=True)
class Failure:
    """An event that could not be handled, the error of its last attempt, and the number of attempts."""

    event: Event
    error: Exception
    attempts: int
    group: str


class Recoverer(Protocol):
    """Disposes of an event. `context` belongs to the strategy's transaction, which commits after the recoverer.

    A recoverer can be defined with `async def`.
    """

    def __call__(
        self,
        failure: Failure,
        context: Any,  # noqa: ANN401 - depends on the strategy
        /,
    ) -> Awaitable[None] | None: ...


def stop(failure: Failure, context: object, /) -> None:
    """Stop the receiver before the event, so that later events of the partition are not handled."""
    del context
    raise stopped_error(
        f"event {failure.event.place} could not be handled in {plural(failure.attempts, 'attempt')}", failure.error
    )


def stopped_error(message: str, error: Exception) -> ReceiverStoppedError:
    """Return a ReceiverStoppedError whose message describes `error`, with a hint."""
    return ReceiverStoppedError(f"{message}: {describe(error)}", _hint(error))


def _hint(error: Exception) -> str:
    if sqlstate(error) == UNDEFINED_TABLE:
        return (
            "create the tables of the service, and those of create_table_sql() in processed_table, position_table "
            "and filter_table, then start again"
        )
    return getattr(error, "hint", "") or "correct the cause and start again"


def log_and_continue(failure: Failure, context: object, /) -> None:
    """Log the event without its payload, and continue after it."""
    del context
    event = failure.event
    extra = {"event_id": event.event_id, "event_type": event.event_type, "place": event.place}
    log.error("event %s skipped: %s", event.place, describe(failure.error), extra=extra)


_Sent = tuple[int, int, bytes | None, str]
"""Offset, timestamp, key and id of an event. A recoverer may pass another value, such as a masked one."""


class DeadLetterTopic:
    """Sends the record's key, value and headers to a dead letter topic, and adds headers that state the cause.

    If the strategy uses Kafka transactions, the dead letter and the offset are committed together. Otherwise the dead
    letter is delivered before the offset is committed. It is sent once, however often the commit is repeated, and again
    only after a crash or rebalance. The headers then name the same topic, partition and offset.
    """

    def __init__(self, producer: Producer, topic: str, *, seconds: float = DELIVERY_S) -> None:
        """`seconds` limits each wait for the brokers. Raises ConfigurationError if the topic does not exist."""
        found = producer.list_topics(topic, timeout=seconds).topics[topic]
        if found.error is not None:
            message = f"cannot write to topic {topic}: {found.error.str()}"
            raise ConfigurationError(message, "create it with cleanup.policy=delete and a long retention")
        self._producer = producer
        self._topic = topic
        self._seconds = seconds
        self._last: dict[tuple[str, str, int], tuple[_Sent, Deliveries]] = {}

    def __call__(self, failure: Failure, context: object, /) -> None:
        record = dead_letter_record(failure, self._topic)
        if isinstance(context, KafkaTransaction):
            context.send(record)
            return
        event = failure.event
        partition = (failure.group, *event.source)
        current = (event.offset, event.timestamp_ms, event.key, event.event_id)
        sent, deliveries = self._last.get(partition, (None, None))
        if deliveries is None or deliveries.has_failed or sent != current:
            deliveries = Deliveries(self._producer, seconds=self._seconds)
            deliveries.send(record)
            self._last[partition] = current, deliveries
        deliveries.wait()


def dead_letter_record(failure: Failure, topic: str) -> Record:
    """Return the record to send to the dead letter topic."""
    event = failure.event
    cause = {
        dead_letter_headers.REASON: type(failure.error).__name__,
        dead_letter_headers.MESSAGE: describe(failure.error),
        dead_letter_headers.GROUP: failure.group,
        dead_letter_headers.TOPIC: event.topic,
        dead_letter_headers.PARTITION: str(event.partition),
        dead_letter_headers.OFFSET: str(event.offset),
        dead_letter_headers.ATTEMPTS: str(failure.attempts),
    }
    kept = tuple((name, value) for name, value in event.raw_headers if name not in cause and value is not None)
    headers = (*kept, *((name, text.encode(errors="backslashreplace")) for name, text in cause.items()))
    return Record(topic, event.key, event.raw_value, headers)


def describe(error: BaseException) -> str:
    """Return an error's class, and its text or, if the text could contain event data, the line of code that failed."""
    cause = driver_error(error)
    if is_database_error(error):
        detail = _describe_database_error(error)
    elif isinstance(error, OutboxError | KafkaException):
        detail = _first_line(error)
    else:
        detail = _line_of_code(error)
    return f"{type(cause).__name__}: {detail}"[:MAX_MESSAGE_LENGTH] if detail else type(cause).__name__


def _describe_database_error(error: BaseException) -> str:
    state, cause = sqlstate(error), driver_error(error)
    if not state:  # raised by the driver; the text of a failed connection contains the address and user
        return _first_line(cause) if is_outage(error) else _line_of_code(error)
    facts, report = [f"SQLSTATE {state}"], getattr(cause, "diag", None)  # pg8000 has no report
    if constraint := getattr(report, "constraint_name", None):
        facts.append(f"constraint {constraint}")
    message = getattr(report, "message_primary", None)
    if message and state in (UNDEFINED_TABLE, INSUFFICIENT_PRIVILEGE):
        facts.append(message)  # contains the name of the table
    return ", ".join(facts)


def _first_line(error: BaseException) -> str:
    try:
        return str(error).partition("\n")[0]
    except Exception:  # of a class of the service
        return ""


def _line_of_code(error: BaseException) -> str:
    """Return the innermost line of the traceback outside the database driver."""
    frames = [frame for frame in extract_tb(error.__traceback__) if DRIVER.isdisjoint(Path(frame.filename).parts)]
    return f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""
