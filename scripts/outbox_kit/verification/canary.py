"""A row of the canary's own aggregate type through the whole path: outbox table, connector, topic, and back.

It arrives after everything that was committed before it (one slot, one task, WAL order), so a delivered
canary also proves that the connector has caught up with the moment it was written.
"""

from __future__ import annotations

import io
import json
import time
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime

import fastavro
from confluent_kafka import Consumer, Message
from psycopg import sql

from outbox_kit.deployment import Deployment
from outbox_kit.errors import OutboxKitError
from outbox_kit.kafka.topic_reader import POLL_S, reader_at_end
from outbox_kit.pipeline import CANARY_AGGREGATE, Pipeline
from outbox_kit.postgres.client import Connection
from outbox_kit.postgres.outbox_row import insertion, outbox_table
from outbox_kit.rules import Check, Finding, Rule, Severity, failed, judge, rule, unknown
from outbox_kit.verification.canary_contract import FRAME, KEY, Told, headers, key_problems, problems
from outbox_kit.verification.murmur2 import partition_of
from outbox_kit.verification.snapshot import database
from outbox_kit.waiting import Seen, wait_for

# Debezium polls every few milliseconds; a commit of Kafka and a busy machine come on top.
LATENCY_S = 5.0
EMIT = "select pg_logical_emit_message(true, %s::text, %s::text)"
Payload = dict[str, str | datetime]
REMEDY = "look at connect.running and postgres.slot above, then at the Connect worker's log"


@dataclass(frozen=True)
class Arrival:
    """One canary record as it came out of the topic, and how long it took."""

    message: Message
    seconds: float


@dataclass(frozen=True)
class Flight:
    """A canary's state and its tombstone, as they arrived."""

    topic: str
    told: Told
    token: str
    bound: float
    state: Arrival
    tombstone: Arrival


RULES: list[Rule[Flight]] = []


@rule(
    RULES,
    "canary.delivered",
    guards="a row that is committed now arrives on its topic",
    remedy=REMEDY,
)
def _delivered(flight: Flight) -> Finding:
    message = flight.state.message
    where = f"{flight.topic} partition {message.partition()} offset {message.offset()}"
    return Finding(True, f"{where}, {flight.state.seconds:.2f} s after its commit", f"within {flight.bound:g} s")


@rule(
    RULES,
    "canary.record",
    guards="it arrives with the key, the headers, the schema id and the payload of the contract",
    remedy="compare the connector config with `outbox render`; see docs/contract.md",
)
def _record(flight: Flight) -> Finding:
    found = problems(flight.state.message, flight.told, flight.token)
    expected = "key, headers, schema id and payload as sent" if flight.told.strict else "key and event_id as sent"
    return Finding(not found, "; ".join(found) or expected, expected)


@rule(
    RULES,
    "canary.partition",
    guards="it arrives in the partition of its key's murmur2: state and tombstone of a key must meet",
    remedy="the producer's partitioner was replaced, or the topic has grown: see docs/contract.md",
)
def _partition(flight: Flight) -> Finding:
    seen = {flight.state.message.partition(), flight.tombstone.message.partition()}
    expected = partition_of(flight.state.message.key() or b"", max(1, flight.told.partitions))
    return Finding(seen == {expected}, f"partition {', '.join(map(str, sorted(seen, key=str)))}", f"{expected}")


@rule(
    RULES,
    "canary.latency",
    guards="it does not take long: the connector keeps up",
    remedy="the connector works off a backlog, or the worker is short of CPU: see postgres.slot-retained",
    severity=Severity.WARNING,
)
def _latency(flight: Flight) -> Finding:
    return Finding(flight.state.seconds <= LATENCY_S, f"{flight.state.seconds:.2f} s", f"{LATENCY_S:g} s at most")


@rule(
    RULES,
    "canary.tombstone",
    guards="a removal arrives as a null value under the same key: compaction then forgets the aggregate",
    remedy="check the value converter: it must pass null on",
)
def _tombstone(flight: Flight) -> Finding:
    message = flight.tombstone.message
    same = not key_problems(message, flight.told) and message.key() == flight.state.message.key()
    seen = "null value" if message.value() is None else "a value"
    return Finding(
        message.value() is None and same, seen if same else f"{seen}, another key", "null value under the same key"
    )


def check(deployment: Deployment, told: Told, *, seconds: float) -> list[Check]:
    """Send a state and then its tombstone; each must arrive within `seconds`."""
    try:
        return judge(RULES, _fly(deployment, told, seconds))
    except OutboxKitError as error:
        first = failed(RULES[0], error.message, f"within {seconds:g} s", error.hint)
        return [first, *unknown(RULES[1:], "it did not arrive")]


def _fly(deployment: Deployment, told: Told, seconds: float) -> Flight:
    topic = deployment.pipeline.topic_of(CANARY_AGGREGATE)
    token = uuid.uuid4().hex
    payload: Payload = {"token": token, "written_at": datetime.now(UTC)}
    with reader_at_end(deployment.environment.kafka, topic) as consumer:
        state = _receive(consumer, send(deployment, told, "canary_sent", payload), seconds)
        tombstone = _receive(consumer, send(deployment, told, "canary_removed", None), seconds)
    return Flight(topic, told, token, seconds, state, tombstone)


def send(deployment: Deployment, told: Told, event_type: str, payload: Payload | None) -> str:
    """Commit one event of the canary and return its id. Raises UnreachableError, RejectedError.

    A row is inserted and deleted in one transaction: the insert is in the WAL, the table stays clean.
    """
    event = str(uuid.uuid4())
    with database(deployment) as connection, connection.transaction():
        if not deployment.pipeline.source.uses_table:
            _emit(connection, deployment.pipeline, event, event_type, _json(payload))
        else:
            stored = _stored(deployment.pipeline, told, payload)
            _insert_and_delete(connection, deployment.pipeline, event, event_type, stored)
    return event


def _json(payload: Payload | None) -> dict[str, str] | None:
    """As JSON has it: times as ISO-8601."""
    if payload is None:
        return None
    return {name: value if isinstance(value, str) else value.isoformat() for name, value in payload.items()}


def _stored(pipeline: Pipeline, told: Told, payload: Payload | None) -> str | bytes | None:
    """As the payload column holds it: JSON, or Avro in Confluent's frame where it is bytea."""
    if payload is None or pipeline.payload_type != "bytea":
        return None if payload is None else json.dumps(_json(payload))
    newest = next(iter(told.schemas))
    framed = io.BytesIO()
    framed.write(FRAME.pack(0, newest))
    fastavro.schemaless_writer(framed, fastavro.parse_schema(json.loads(told.schemas[newest])), payload)
    return framed.getvalue()


def _emit(
    connection: Connection, pipeline: Pipeline, event: str, event_type: str, payload: dict[str, str] | None
) -> None:
    columns = pipeline.source.columns
    content = {
        columns.id: event,
        columns.aggregate_type: CANARY_AGGREGATE,
        columns.aggregate_id: KEY,
        columns.event_type: event_type,
        columns.payload: payload,
        columns.created_at: datetime.now(UTC).isoformat(),
    }
    connection.execute(EMIT, (pipeline.source.message_prefix, json.dumps(content)))


def _insert_and_delete(
    connection: Connection, pipeline: Pipeline, event: str, event_type: str, stored: str | bytes | None
) -> None:
    source = pipeline.source
    # Columns that place other aggregates: the table of `apply` demands them of every row. 0 is text and number.
    named = set(source.columns.model_dump().values())
    fields = dict.fromkeys(entry.partition_field for entry in pipeline.aggregates.values() if entry.partition_field)
    further = [field for field in fields if field not in named]
    values = [event, CANARY_AGGREGATE, KEY, event_type, stored]
    values += ["0"] * len(further)
    marks = sql.SQL(", ").join([sql.Placeholder()] * len(values))
    connection.execute(insertion(source, sql.SQL("values ({})").format(marks), *further), values)
    removal = sql.SQL("delete from {} where {} = %s").format(outbox_table(source), sql.Identifier(source.columns.id))
    connection.execute(removal, (event,))


def _receive(consumer: Consumer, event: str, seconds: float) -> Arrival:
    started = time.monotonic()
    seen = 0

    def look() -> Seen[Arrival]:
        nonlocal seen
        message = consumer.poll(POLL_S)
        if message is None:
            return Seen(None, f"{seen} other records")
        if message.error():
            return Seen(None, str(message.error()))
        if headers(message).get("event_id") == event:
            return Seen(Arrival(message, time.monotonic() - started), "arrived")
        seen += 1
        return Seen(None, f"{seen} other records")

    return wait_for("the canary to arrive on its topic", look, seconds=seconds, every=0.01, hint=REMEDY)
