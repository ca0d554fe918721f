"""Canary: a test event with its own aggregate type and topic, written to the outbox and read from the topic.

The connector delivers in commit order. A delivered canary therefore proves that the connector
has processed everything that was committed before the canary.
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
from outbox_kit.kafka.topic_reader import POLL_S, reader_at_end, text_headers
from outbox_kit.pipeline import CANARY_AGGREGATE, Pipeline
from outbox_kit.postgres import ddl
from outbox_kit.postgres.client import Connection
from outbox_kit.rules import Check, Finding, Rules, Severity, evaluate, unknown
from outbox_kit.verification.canary_contract import FRAME, KEY, CanaryContract, key_problems, record_problems
from outbox_kit.verification.live_state import database
from outbox_kit.verification.murmur2 import partition_of
from outbox_kit.waiting import Observation, wait_for

# Maximum latency. Debezium polls every few milliseconds; the commit in Kafka and a busy machine add latency.
LATENCY_S = 5.0
EMIT = "select pg_logical_emit_message(true, %s::text, %s::text)"
Payload = dict[str, str | datetime]
NOT_ARRIVED_HINT = "see connect.running and postgres.slot above, then the Connect worker's log"


@dataclass(frozen=True)
class Arrival:
    """Record of the canary, and its latency from the commit to the arrival."""

    message: Message
    latency_seconds: float


@dataclass(frozen=True)
class Delivery:
    """Received state and tombstone of one canary."""

    topic: str
    contract: CanaryContract
    token: str
    limit_s: float
    state: Arrival
    tombstone: Arrival


RULES = Rules[Delivery]()


@RULES.rule("canary.delivered", condition="the canary arrives on its topic", remedy=NOT_ARRIVED_HINT)
def _delivered(delivery: Delivery) -> Finding:
    message = delivery.state.message
    location = f"{delivery.topic} partition {message.partition()} offset {message.offset()}"
    return Finding(
        True, f"{location}, {delivery.state.latency_seconds:.2f} s after its commit", f"within {delivery.limit_s:g} s"
    )


@RULES.rule(
    "canary.record",
    condition="key, headers, schema id and payload of the canary follow the contract",
    remedy="compare the connector config with `outbox render`; see docs/contract.md",
)
def _record(delivery: Delivery) -> Finding:
    problems = record_problems(delivery.state.message, delivery.contract, delivery.token)
    strict = delivery.contract.strict
    expected = "key, headers, schema id and payload as sent" if strict else "key and event_id as sent"
    return Finding(not problems, "; ".join(problems) or expected, expected)


@RULES.rule(
    "canary.partition",
    condition="state and tombstone of the canary are in the partition that the murmur2 hash of the key selects",
    remedy="use the default partitioner; if partitions were added to the topic, see docs/contract.md",
)
def _partition(delivery: Delivery) -> Finding:
    state, tombstone = delivery.state.message, delivery.tombstone.message
    actual = {state.partition(), tombstone.partition()}
    expected = partition_of(state.key() or b"", max(1, delivery.contract.partitions))
    return Finding(actual == {expected}, f"partition {', '.join(map(str, sorted(actual, key=str)))}", f"{expected}")


@RULES.rule(
    "canary.latency",
    condition=f"the canary arrives within {LATENCY_S:g} s; a longer latency means a backlog of the connector",
    remedy="check postgres.slot-retained for a backlog of the connector, and the CPU load of the Connect worker",
    severity=Severity.WARNING,
)
def _latency(delivery: Delivery) -> Finding:
    seconds = delivery.state.latency_seconds
    return Finding(seconds <= LATENCY_S, f"{seconds:.2f} s", f"{LATENCY_S:g} s at most")


@RULES.rule(
    "canary.tombstone",
    condition="the deletion of the canary arrives as a null value with its key, so that compaction removes the key",
    remedy="use a value converter that converts null to null",
)
def _tombstone(delivery: Delivery) -> Finding:
    message = delivery.tombstone.message
    same_key = not key_problems(message, delivery.contract) and message.key() == delivery.state.message.key()
    value = "null value" if message.value() is None else "a value"
    passed = message.value() is None and same_key
    return Finding(passed, value if same_key else f"{value}, wrong key", "null value under the same key")


def check(deployment: Deployment, contract: CanaryContract, *, seconds: float) -> list[Check]:
    """Send a state and then its tombstone. Wait up to `seconds` for each of the two records."""
    try:
        return evaluate(RULES, _deliver(deployment, contract, seconds))
    except OutboxKitError as error:
        failure = RULES[0].check(Finding(False, error.message, f"within {seconds:g} s", error.hint))
        return [failure, *unknown(RULES[1:], "the canary did not arrive")]


def _deliver(deployment: Deployment, contract: CanaryContract, seconds: float) -> Delivery:
    topic = deployment.pipeline.topic_of(CANARY_AGGREGATE)
    token = uuid.uuid4().hex
    payload: Payload = {"token": token, "written_at": datetime.now(UTC)}
    with reader_at_end(deployment.environment.kafka, topic) as consumer:
        state = _receive(consumer, send(deployment, contract, "canary_sent", payload), seconds)
        tombstone = _receive(consumer, send(deployment, contract, "canary_removed", None), seconds)
    return Delivery(topic, contract, token, seconds, state, tombstone)


def send(deployment: Deployment, contract: CanaryContract, event_type: str, payload: Payload | None) -> str:
    """Commit one event of the canary and return its id. Raises UnreachableError, RejectedError.

    A row is inserted and deleted in one transaction: the WAL contains the insert, and the table does not change.
    """
    event_id = str(uuid.uuid4())
    with database(deployment) as connection, connection.transaction():
        if deployment.pipeline.source.message_prefix is not None:
            _emit(connection, deployment.pipeline, event_id, event_type, _json(payload))
        else:
            column = _column_value(deployment.pipeline, contract, payload)
            _insert_and_delete(connection, deployment.pipeline, event_id, event_type, column)
    return event_id


def _json(payload: Payload | None) -> dict[str, str] | None:
    """Return the payload with times in ISO 8601."""
    if payload is None:
        return None
    return {name: value if isinstance(value, str) else value.isoformat() for name, value in payload.items()}


def _column_value(pipeline: Pipeline, contract: CanaryContract, payload: Payload | None) -> str | bytes | None:
    """Return the value of the payload column: JSON, or Avro in Confluent's wire format if the column is bytea."""
    if payload is None:
        return None
    if pipeline.payload_type != "bytea":
        return json.dumps(_json(payload))
    latest = next(iter(contract.schemas))
    framed = io.BytesIO()
    framed.write(FRAME.pack(0, latest))
    fastavro.schemaless_writer(framed, fastavro.parse_schema(json.loads(contract.schemas[latest])), payload)
    return framed.getvalue()


def _emit(
    connection: Connection, pipeline: Pipeline, event_id: str, event_type: str, payload: dict[str, str] | None
) -> None:
    columns = pipeline.source.columns
    content = {
        columns.id: event_id,
        columns.aggregate_type: CANARY_AGGREGATE,
        columns.aggregate_id: KEY,
        columns.event_type: event_type,
        columns.payload: payload,
        columns.created_at: datetime.now(UTC).isoformat(),
    }
    connection.execute(EMIT, (pipeline.source.message_prefix, json.dumps(content)))


def _insert_and_delete(
    connection: Connection, pipeline: Pipeline, event_id: str, event_type: str, payload: str | bytes | None
) -> None:
    source = pipeline.source
    # The table may require a value for the partition fields of all aggregates. 0 is valid as text and as a number.
    columns = set(source.columns.model_dump().values())
    fields = dict.fromkeys(entry.partition_field for entry in pipeline.aggregates.values() if entry.partition_field)
    extra_fields = [field for field in fields if field not in columns]
    values = [event_id, CANARY_AGGREGATE, KEY, event_type, payload, *["0"] * len(extra_fields)]
    placeholders = sql.SQL(", ").join([sql.Placeholder()] * len(values))
    connection.execute(ddl.insertion(source, sql.SQL("values ({})").format(placeholders), *extra_fields), values)
    removal = sql.SQL("delete from {} where {} = %s").format(
        ddl.qualified(source.table), sql.Identifier(source.columns.id)
    )
    connection.execute(removal, (event_id,))


def _receive(consumer: Consumer, event_id: str, seconds: float) -> Arrival:
    started = time.monotonic()
    skipped = 0

    def poll() -> Observation[Arrival]:
        nonlocal skipped
        message = consumer.poll(POLL_S)
        if message is not None and message.error():
            return Observation(None, str(message.error()))
        if message is not None:
            if text_headers(message).get("event_id") == event_id:
                return Observation(Arrival(message, time.monotonic() - started), "arrived")
            skipped += 1
        return Observation(None, f"{skipped} other records")

    return wait_for("the canary to arrive on its topic", poll, seconds=seconds, interval=0.01, hint=NOT_ARRIVED_HINT)
