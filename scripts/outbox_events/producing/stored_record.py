"""Records as rows: the columns that the recovery store and the table of unproven records have in common."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from typing import Any

from psycopg import sql
from psycopg.types.json import Jsonb

from outbox_events.contract.headers import EVENT_ID
from outbox_events.kafka.record import Record
from outbox_events.sending.event import InvalidEventError
from outbox_events.sending.outbox_table import OutboxTable

COLUMNS = sql.SQL("event_id, topic, partition, key, value, headers")
COLUMN_DEFINITIONS = sql.SQL(
    "topic text not null, partition int, key bytea not null, value bytea, headers jsonb not null, "
    "created_at timestamptz not null default clock_timestamp()"
)
# One array per column, so that the statement is the same for any number of records.
UNNEST = sql.SQL(
    "unnest(%(event_ids)s::text[], %(topics)s::text[], %(partitions)s::int[], %(keys)s::bytea[], "
    "%(values)s::bytea[], %(headers)s::jsonb[])"
)


def event_id(record: Record) -> str:
    """Return the id in the header event_id. Raises InvalidEventError if the record has none."""
    for name, value in record.headers:
        if name == EVENT_ID and value:
            return value.decode()
    message = f"a record for topic {record.topic} has no header {EVENT_ID}, so the topic cannot prove it"
    raise InvalidEventError(message, "set the header to a unique id, for example str(uuid4()).encode()")


def parameters(records: Sequence[Record]) -> dict[str, list[Any]]:
    """Return the parameters of UNNEST."""
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
    """Return the record of a row."""
    decoded = tuple((name, b64decode(text)) for name, text in headers)
    return Record(topic, key, value, headers=decoded, partition=partition)


def identifier(table: str) -> sql.Identifier:
    """Return the quoted name of `TABLE` or `SCHEMA.TABLE`. Raises ConfigurationError for another form."""
    return sql.Identifier(*OutboxTable(table).parts)
