"""Store records in a table until their delivery is proven, and find delivered records on their topics."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import IsolationLevel, Message
from psycopg import sql
from psycopg.types.json import Jsonb

from outbox_events.contract.headers import EVENT_ID
from outbox_events.kafka.record import Record, id_text, text_headers
from outbox_events.kafka.topic_reader import read_bounds, read_records
from outbox_events.sending.event import InvalidEventError
from outbox_events.sending.outbox_table import OutboxTable

COLUMNS = sql.SQL("event_id, topic, partition, key, value, headers")
COLUMN_DEFINITIONS = sql.SQL(
    "topic text not null, partition int, key bytea not null, value bytea, headers jsonb not null, "
    "created_at timestamptz not null default clock_timestamp()"
)
# One array per column, so that the statement does not depend on the number of records.
UNNEST = sql.SQL(
    "unnest(%(event_ids)s::text[], %(topics)s::text[], %(partitions)s::int[], %(keys)s::bytea[], "
    "%(values)s::bytea[], %(headers)s::jsonb[])"
)
READ_S = 120.0
"""Default time limit for reading when no new record arrives. It exceeds the default transaction.timeout.ms, after which
a broker ends open transactions."""
HINT = "a transaction of another producer might be open: wait until its transaction.timeout.ms has passed"


def event_id(record: Record) -> str:
    """Return the value of the header event_id. Raises InvalidEventError if the record does not have this header."""
    if value := dict(record.headers).get(EVENT_ID):
        return id_text(value)
    message = f"a record for topic {record.topic} has no header {EVENT_ID}, so its delivery cannot be proven"
    raise InvalidEventError(message, "set the header to a unique id, for example str(uuid4()).encode()")


def parameters(records: Sequence[Record]) -> dict[str, list[Any]]:
    """Return the parameters of UNNEST, one list for each column."""
    return {
        "event_ids": [event_id(record) for record in records],
        "topics": [record.topic for record in records],
        "partitions": [record.partition for record in records],
        "keys": [record.key for record in records],
        "values": [record.value for record in records],
        "headers": [Jsonb([[name, b64encode(value).decode()] for name, value in r.headers]) for r in records],
    }


def from_row(
    topic: str, partition: int | None, key: bytes, value: bytes | None, headers: Iterable[tuple[str, str]]
) -> Record:
    """Return the record that a row contains."""
    decoded = tuple((name, b64decode(text)) for name, text in headers)
    return Record(topic, key, value, headers=decoded, partition=partition)


def identifier(table: str) -> sql.Identifier:
    """Return the quoted name of `TABLE` or `SCHEMA.TABLE`. Raises ConfigurationError for any other form."""
    return sql.Identifier(*OutboxTable(table).parts)


def delivered_event_ids(
    settings: Mapping[str, Any], topics: Iterable[str], wanted: Iterable[str], *, seconds: float = READ_S
) -> set[str]:
    """Return those `wanted` event ids for which the topics contain a committed record.

    The topics are read from their beginning to the end that they have when the function is called. The function waits
    for open transactions before that end, because a committed record can follow the records of an open transaction.
    Reading stops early if all ids are found. Raises WaitTimeoutError after `seconds` without a new record, and
    UnreachableError.
    """
    searched, found = set(wanted), set[str]()
    if not searched:
        return found

    def process(message: Message) -> bool:
        if (event_id := message_event_id(message)) in searched:
            found.add(str(event_id))
        return found == searched

    ranges = read_bounds(settings, set(topics), IsolationLevel.READ_UNCOMMITTED, seconds=seconds)
    read_records(settings, ranges, process, seconds=seconds, is_idle_limit=True, hint=HINT)
    return found


def message_event_id(message: Message) -> str | None:
    """Return the event id from the headers of a record, or None if the header is missing."""
    return text_headers(message).get(EVENT_ID)
