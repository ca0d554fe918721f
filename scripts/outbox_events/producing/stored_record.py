"""Store records in a table until their delivery is proven, and define the result of a recovery.

A row is superseded if a newer record of its key was delivered. `position` is the order in which the rows were saved. It
is the order of the commits if each transaction locks the aggregate's row before it saves a record.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Message
from psycopg import sql
from psycopg.types.json import Jsonb

from outbox_events.contract.headers import EVENT_ID
from outbox_events.kafka.record import Record, id_text, text_headers
from outbox_events.sending.event import InvalidEventError
from outbox_events.sending.outbox_table import OutboxTable

COLUMNS = sql.SQL("event_id, topic, partition, key, value, headers")
COLUMN_DEFINITIONS = sql.SQL(
    "topic text not null, partition int, key bytea not null, value bytea, headers jsonb not null, "
    "created_at timestamptz not null default clock_timestamp(), is_superseded boolean not null default false"
)
# One array per column, so that the statement does not depend on the number of records.
UNNEST = sql.SQL(
    "unnest(%(event_ids)s::text[], %(topics)s::text[], %(partitions)s::int[], %(keys)s::bytea[], "
    "%(values)s::bytea[], %(headers)s::jsonb[]) "
    "with ordinality as record(event_id, topic, partition, key, value, headers, number)"
)
# Delete the rows of delivered records, and mark the older rows of their keys. A row that another session has locked is
# being deleted or marked by it.
DELETE_DELIVERED = sql.SQL(
    "with done as (delete from {table} where {condition} returning topic, key, position), older as ("
    "select older.ctid from {table} as older join done on older.topic = done.topic and older.key = done.key "
    "and older.position < done.position where not older.is_superseded "
    "and older.position not in (select position from done) for update of older skip locked), "
    "marked as (update {table} set is_superseded = true where ctid = any(array(select ctid from older))) "
    "select count(*) from done"
)


@dataclass(frozen=True)
class Recovered:
    """Result of a recovery: counts of records, event ids, and names of topics.

    `proven`: the record is on its topic, and the database transaction committed. `rolled_back`: the record is not on
    its topic, and the database transaction did not commit. `resent`: the database transaction committed, but the record
    was missing. `undecided`: PostgreSQL does not know the outcome of the transaction, because it is old or from another
    database. Its rows remain. `phantoms`: the record is on its topic and cannot be withdrawn, but the database
    transaction did not commit. `superseded`: the record was missing but was not sent, because its topic is compacted
    and a newer record of its key was sent. `missing_topics`: these topics do not exist. The rows of their records
    remain. `rejected`: the client rejects these records, for example because of their size. Their rows remain.
    `skipped`: the records were too young, or were saved while the recovery ran. Their rows remain.
    """

    proven: int = 0
    rolled_back: int = 0
    resent: int = 0
    undecided: int = 0
    phantoms: tuple[str, ...] = ()
    superseded: tuple[str, ...] = ()
    missing_topics: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()
    skipped: int = 0


def event_id(record: Record) -> str:
    """Return the value of the header event_id. Raises InvalidEventError if the record does not have this header."""
    if value := dict(record.headers).get(EVENT_ID):
        return id_text(value)
    message = f"a record for topic {record.topic} has no header {EVENT_ID}, so its delivery cannot be proven"
    raise InvalidEventError(message, "set the header to a unique id, for example str(uuid4()).encode()")


def parameters(records: Sequence[Record]) -> dict[str, list[Any]]:
    """Return the parameters of UNNEST, one list for each column. Raises InvalidEventError for a record without key."""
    for record in records:
        if record.key is None:
            message = f"a record for topic {record.topic} has no key, so older records of its key cannot be found"
            raise InvalidEventError(message, "set `key` to the id of the aggregate, for example b'42'")
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


def message_event_id(message: Message) -> str | None:
    """Return the event id from the headers of a record, or None if the header is missing."""
    return text_headers(message).get(EVENT_ID)
