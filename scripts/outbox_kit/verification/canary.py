"""Write a canary to the outbox, and read it from its topic. A canary is a test event with its own aggregate type.

The connector delivers events in commit order. The arrival of the canary therefore proves that the connector has
processed all events that were committed before the canary.
"""

from __future__ import annotations

import io
import json
import time
import uuid
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import fastavro
import psycopg
from confluent_kafka import Consumer, Message
from psycopg import sql

from outbox_events.contract import wire_format
from outbox_events.contract.headers import AGGREGATE_TYPE, EVENT_ID
from outbox_events.contract.partitioner import partition_of
from outbox_events.contract.source_sequence import version_of
from outbox_events.errors import OutboxError
from outbox_events.kafka.record import text_headers
from outbox_events.kafka.topic_reader import POLL_S, open_consumer
from outbox_events.waiting import Observation, wait_for
from outbox_kit.connect.state import LOST_LOCK_HINT
from outbox_kit.deployment import Deployment
from outbox_kit.kafka.client import client_settings
from outbox_kit.pipeline import CANARY_AGGREGATE, Pipeline
from outbox_kit.postgres import ddl
from outbox_kit.postgres.client import Connection
from outbox_kit.results.checks import Check, Finding, Rules, Severity, Status, evaluate, skip_rules
from outbox_kit.results.repair_commands import RESEND_HINT
from outbox_kit.verification.live_state import connect_database

# Maximum latency without a warning. WAL decoding, the commit in Kafka and a busy machine add latency.
MAX_LATENCY_S = 5.0
KEY = "outbox-canary"
NOT_A_STATE = "the value is null, so the record is a tombstone and not a state"
NOT_AVRO = "the value has no schema id, because it is not in Confluent's wire format"
EMIT_SQL = "select pg_logical_emit_message(true, %s::text, %s::text)"
Payload = dict[str, str | datetime]
NOT_ARRIVED_HINT = (
    "fix the other failed checks first; if only this check failed, run `outbox restart`, and check the log of the "
    "Connect worker"
)


@dataclass(frozen=True)
class CanaryContract:
    """Expected content of the canary's record, from the lock file and the live config.

    `is_strict` is False if the config has no OutboxRouter, because another transform can write another format.
    `schemas` maps schema ids to schemas. The latest schema comes first.
    """

    is_strict: bool
    partition_count: int
    source_epoch: int
    schemas: dict[int, str]


@dataclass(frozen=True)
class Arrival:
    """Received record of the canary, and the time between the commit of the event and the arrival of the record."""

    message: Message
    latency_seconds: float


@dataclass(frozen=True)
class Delivery:
    """Received records of one canary: `state`, then `tombstone`. `limit_s` is the time limit for each record."""

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
    condition="the key, headers, schema id and payload of the canary conform to the contract",
    remedy=f"if connect.config fails, run `outbox apply`, {RESEND_HINT}; otherwise see docs/contract.md",
)
def _record(delivery: Delivery) -> Finding:
    problems = record_problems(delivery.state.message, delivery.contract, delivery.token)
    is_strict = delivery.contract.is_strict
    expected = "key, headers, schema id and payload as sent" if is_strict else "key and event_id as sent"
    epoch = version_of(text_headers(delivery.state.message)).source_epoch
    remedy = LOST_LOCK_HINT if is_strict and epoch > delivery.contract.source_epoch else ""
    return Finding(not problems, "; ".join(problems) or expected, expected, remedy)


@RULES.rule(
    "canary.partition",
    condition="the canary's state and tombstone are in the partition that the murmur2 hash of the key selects",
    remedy="use the default partitioner; if partitions were added to the topic, see docs/planned-changes.md",
)
def _partition(delivery: Delivery) -> Finding:
    actual = [delivery.state.message.partition(), delivery.tombstone.message.partition()]
    partition = partition_of(delivery.state.message.key() or b"", max(1, delivery.contract.partition_count))
    expected = f"partitions {partition} and {partition} (state and tombstone)"
    return Finding(actual == [partition, partition], f"partitions {actual[0]} and {actual[1]}", expected)


@RULES.rule(
    "canary.latency",
    condition=f"the canary arrives within {MAX_LATENCY_S:g} s; a longer latency means that the connector has a backlog",
    remedy="check postgres.slot-retained for a backlog of the connector, and check the CPU load of the Connect worker",
    severity=Severity.WARNING,
)
def _latency(delivery: Delivery) -> Finding:
    seconds = delivery.state.latency_seconds
    return Finding(seconds <= MAX_LATENCY_S, f"{seconds:.2f} s", f"{MAX_LATENCY_S:g} s at most")


@RULES.rule(
    "canary.tombstone",
    condition="the deletion of the canary arrives as a null value with its key, so that compaction removes the key",
    remedy="use a value converter that converts null to null",
)
def _tombstone(delivery: Delivery) -> Finding:
    message = delivery.tombstone.message
    has_same_key = not key_problems(message, delivery.contract) and message.key() == delivery.state.message.key()
    value_text = "null value" if message.value() is None else "non-null value"
    passed = message.value() is None and has_same_key
    return Finding(passed, f"{value_text}, {'same' if has_same_key else 'different'} key", "null value, same key")


def check(deployment: Deployment, contract: CanaryContract, *, seconds: float, hooks: str = "") -> list[Check]:
    """Send a state and then its tombstone, and check both records. Wait up to `seconds` for each record.

    `hooks` names the outbox table's triggers, rules and policies, which the remedies of failed checks mention.
    """
    try:
        checks = evaluate(RULES, _deliver(deployment, contract, seconds))
    except OutboxError as error:
        hint = _rejection_hint(deployment, error.__cause__) or error.hint
        failed_check = RULES[0].check(Finding(False, error.message, f"within {seconds:g} s", hint))
        checks = [failed_check, *skip_rules(RULES[1:], "the canary did not arrive")]
    return [_with_hooks(check, hooks) for check in checks]


def _rejection_hint(deployment: Deployment, cause: BaseException | None) -> str:
    """Return the hint if the table rejected the canary because of `cause`, or an empty text for another cause."""
    source = deployment.environment.source
    if not deployment.pipeline.source.uses_table:
        return ""
    table = ddl.quoted_text(deployment.pipeline.source.table)
    if isinstance(cause, psycopg.errors.CheckViolation):
        name = cause.diag.constraint_name
        return f"change constraint {name} so that it accepts the aggregate type {CANARY_AGGREGATE!r}"
    if isinstance(cause, psycopg.errors.NotNullViolation):
        column = sql.Identifier(cause.diag.column_name or "").as_string(None)
        return (
            f"the canary has no value for column {column}: set a default, or run "
            f"`alter table {table} alter column {column} drop not null`"
        )
    if isinstance(cause, psycopg.errors.InsufficientPrivilege):
        role = sql.Identifier((source.verifier or source.admin).user).as_string(None)
        return f"run `grant select, insert, delete on {table} to {role}`, and check the policies of the table"
    return ""


def _with_hooks(check: Check, hooks: str) -> Check:
    if check.status is not Status.FAIL or not hooks:
        return check
    remedy = f"disable each of these objects that changes or drops rows ({hooks}); otherwise {check.remedy}"
    return replace(check, remedy=remedy)


def _deliver(deployment: Deployment, contract: CanaryContract, seconds: float) -> Delivery:
    topic = deployment.pipeline.topic_of(CANARY_AGGREGATE)
    token = uuid.uuid4().hex
    payload: Payload = {"token": token, "written_at": datetime.now(UTC)}
    ends = {(topic, number): bound.end for number, bound in deployment.kafka.bounds(topic).items()}
    with open_consumer(client_settings(deployment.environment.kafka), ends) as consumer:
        state = _receive(consumer, send(deployment, contract, "canary_sent", payload), seconds)
        tombstone = _receive(consumer, send(deployment, contract, "canary_removed", None), seconds)
    return Delivery(topic, contract, token, seconds, state, tombstone)


def send(deployment: Deployment, contract: CanaryContract, event_type: str, payload: Payload | None) -> str:
    """Commit one event of the canary, and return the event's id. Raises UnreachableError, RejectedError.

    An outbox row is inserted and deleted in one transaction, so the WAL contains the insert and the table is unchanged.
    """
    event_id = str(uuid.uuid4())
    with connect_database(deployment) as connection, connection.transaction():
        if deployment.pipeline.source.message_prefix is not None:
            _emit_message(connection, deployment.pipeline, event_id, event_type, _json_payload(payload))
        else:
            value = _column_value(deployment.pipeline, contract, payload)
            _insert_and_delete(connection, deployment.pipeline, event_id, event_type, value)
    return event_id


def _json_payload(payload: Payload | None) -> dict[str, str] | None:
    """Return the payload, with each datetime as ISO 8601 text."""
    if payload is None:
        return None
    return {name: value if isinstance(value, str) else value.isoformat() for name, value in payload.items()}


def _column_value(pipeline: Pipeline, contract: CanaryContract, payload: Payload | None) -> str | bytes | None:
    """Return the value for the payload column as JSON, or as Avro in Confluent's wire format if the column is bytea."""
    if payload is None:
        return None
    if pipeline.payload_type != "bytea":
        return json.dumps(_json_payload(payload))
    schema_id, schema = next(iter(contract.schemas.items()))
    buffer = io.BytesIO()
    buffer.write(wire_format.PREFIX.pack(0, schema_id))
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(json.loads(schema)), payload)
    return buffer.getvalue()


def _emit_message(
    connection: Connection, pipeline: Pipeline, event_id: str, event_type: str, payload: dict[str, str] | None
) -> None:
    columns = pipeline.source.columns
    event = {
        columns.id: event_id,
        columns.aggregate_type: CANARY_AGGREGATE,
        columns.aggregate_id: KEY,
        columns.event_type: event_type,
        columns.payload: payload,
        columns.created_at: datetime.now(UTC).isoformat(),
    }
    connection.execute(EMIT_SQL, (pipeline.source.message_prefix, json.dumps(event)))


def _insert_and_delete(
    connection: Connection, pipeline: Pipeline, event_id: str, event_type: str, payload: str | bytes | None
) -> None:
    source = pipeline.source
    # The columns of partition fields can be NOT NULL in an existing table. "0" is valid as text and as a number.
    contract_columns = set(source.columns.model_dump().values())
    fields = dict.fromkeys(pipeline.partition_fields.values())
    additional_columns = [field for field in fields if field not in contract_columns]
    values = [event_id, CANARY_AGGREGATE, KEY, event_type, payload, *["0"] * len(additional_columns)]
    placeholders = sql.SQL(", ").join([sql.Placeholder()] * len(values))
    rows = sql.SQL("values ({})").format(placeholders)
    connection.execute(ddl.insertion(source, rows, *additional_columns), values)
    deletion = sql.SQL("delete from {} where {} = %s").format(
        ddl.qualified_name(source.table), sql.Identifier(source.columns.id)
    )
    connection.execute(deletion, (event_id,))


def _receive(consumer: Consumer, event_id: str, seconds: float) -> Arrival:
    started_at, skipped_count = time.monotonic(), 0

    def poll() -> Observation[Arrival]:
        nonlocal skipped_count
        message = consumer.poll(POLL_S)
        if message is not None and message.error():
            return Observation(None, str(message.error()))
        if message is not None:
            if text_headers(message).get(EVENT_ID) == event_id:
                return Observation(Arrival(message, time.monotonic() - started_at), "arrived")
            skipped_count += 1
        return Observation(None, f"{skipped_count} other records")

    return wait_for("the canary to arrive on its topic", poll, seconds=seconds, interval=0.01, hint=NOT_ARRIVED_HINT)


def record_problems(message: Message, contract: CanaryContract, token: str) -> list[str]:
    """Describe each difference between the record and the contract, without payloads. `token` is the sent token."""
    problems = key_problems(message, contract)
    if not contract.is_strict:
        return problems
    headers, value = text_headers(message), message.value()
    if headers.get(AGGREGATE_TYPE) != CANARY_AGGREGATE:
        problems.append("header aggregate_type is missing or wrong")
    version = version_of(headers)
    if version.lsn is None:
        problems.append("header source_sequence is missing or malformed")
    elif version.source_epoch != contract.source_epoch:
        problems.append(f"source epoch {version.source_epoch}, not {contract.source_epoch}")
    if value is None:
        return [*problems, NOT_A_STATE]
    schema_id, avro_body = wire_format.schema_id(value), wire_format.body(value)
    if schema_id is None or not avro_body:
        return [*problems, NOT_AVRO]
    if schema_id not in contract.schemas:
        return [*problems, f"schema id {schema_id} is not in the lock file"]
    if _token(avro_body, contract.schemas[schema_id]) != token:
        problems.append("the payload does not decode to the token that was sent")
    return problems


def key_problems(message: Message, contract: CanaryContract) -> list[str]:
    """Return ["wrong key"] or []. If `is_strict` is false, the key can contain more bytes, such as a schema id."""
    key, expected = message.key() or b"", KEY.encode()
    return [] if key == expected or (not contract.is_strict and expected in key) else ["wrong key"]


def _token(avro_body: bytes, schema: str) -> str | None:
    """Return the field `token` of an Avro-encoded record, or None if the record cannot be decoded."""
    try:
        record = fastavro.schemaless_reader(io.BytesIO(avro_body), json.loads(schema), None)
    except (EOFError, ValueError, IndexError):  # UnicodeDecodeError is a ValueError
        return None
    return str(record["token"]) if isinstance(record, dict) else None
