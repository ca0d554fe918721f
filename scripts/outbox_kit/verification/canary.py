"""A row of the canary's own aggregate type through the whole path: outbox table, connector, topic, and back.

It arrives after everything that was committed before it (one slot, one task, WAL order), so a delivered
canary also proves that the connector has caught up with the moment it was written.
"""

from __future__ import annotations

import io
import json
import re
import struct
import time
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime

import fastavro
from confluent_kafka import Consumer, Message
from psycopg import sql

from outbox_kit.checking import Check, Status, check
from outbox_kit.deployment import Deployment
from outbox_kit.kafka.reader import POLL_S, reader_at_end
from outbox_kit.pipeline import CANARY_AGGREGATE, Lock, Source
from outbox_kit.postgres import client as postgres_client
from outbox_kit.waiting import Seen, wait_for

KEY = "outbox-canary"
# docs/contract.md: 4 hex source epoch, 16 hex commit LSN, 16 hex event LSN.
SEQUENCE = re.compile(r"^[0-9a-f]{4}:[0-9a-f]{16}-[0-9a-f]{16}$")
FRAME = struct.Struct(">bI")
REMEDY = "look at connect.running and postgres.slot above, then at the Connect worker's log"


@dataclass(frozen=True)
class Arrival:
    """One canary record as it came out of the topic, and how long it took."""

    message: Message
    seconds: float


def run(deployment: Deployment, lock: Lock | None, *, seconds: float) -> list[Check]:
    """Send a state and then its tombstone; each must arrive within `seconds`. Raises WaitTimeoutError."""
    topic = deployment.pipeline.topic_of(CANARY_AGGREGATE)
    token = uuid.uuid4().hex
    payload = {"token": token, "written_at": datetime.now(UTC).isoformat()}
    with reader_at_end(deployment.environment.kafka, topic) as consumer:
        event = _send(deployment, "canary_sent", payload)
        state = _receive(consumer, event, seconds)
        removal = _send(deployment, "canary_removed", None)
        tombstone = _receive(consumer, removal, seconds)
    return [
        check(
            "canary.delivered",
            True,
            seen=f"{topic} partition {state.message.partition()} offset {state.message.offset()}, "
            f"{state.seconds:.2f} s after its commit",
            expected=f"within {seconds:g} s",
            remedy=REMEDY,
        ),
        _record_check(state.message, lock, token),
        check(
            "canary.tombstone",
            tombstone.message.value() is None and tombstone.message.key() == KEY.encode(),
            seen="null value" if tombstone.message.value() is None else "a value",
            expected="null value under the same key",
            remedy="check the value converter: it must pass null on",
        ),
    ]


def not_sent() -> Check:
    """The canary's check where it could not arrive anyway."""
    return Check("canary.delivered", Status.FAIL, "not sent: see what failed above", "delivered", REMEDY)


def _record_check(message: Message, lock: Lock | None, token: str) -> Check:
    problems = _problems(message, lock, token)
    return check(
        "canary.record",
        not problems,
        seen="; ".join(problems) or "key, headers, schema id and payload as sent",
        expected="key, headers, schema id and payload as sent",
        remedy="compare the connector config with `outbox render`; see docs/contract.md",
    )


def _problems(message: Message, lock: Lock | None, token: str) -> list[str]:
    """What is wrong with the record, in words; never its content."""
    headers = _headers(message)
    locked = {entry.id: entry.text for entry in lock.schemas.get(CANARY_AGGREGATE, [])} if lock else {}
    problems = [] if message.key() == KEY.encode() else ["another key"]
    if headers.get("aggregate_type") != CANARY_AGGREGATE:
        problems.append("header aggregate_type is missing or wrong")
    if not SEQUENCE.match(headers.get("source_sequence", "")):
        problems.append("header source_sequence is missing or malformed")
    value = message.value() or b""
    magic, schema_id = FRAME.unpack_from(bytes(value)) if len(value) > FRAME.size else (-1, -1)
    if magic != 0 or schema_id not in locked:
        return [*problems, f"schema id {schema_id} is not in the lock file"]
    if _token(value[FRAME.size :], locked[schema_id]) != token:
        problems.append("the payload decodes to another token, or not at all")
    return problems


def _token(body: bytes, schema: str) -> str | None:
    """The token in an Avro body; None where the body cannot be read."""
    try:
        decoded = fastavro.schemaless_reader(io.BytesIO(body), json.loads(schema), None)
    except (EOFError, ValueError, IndexError):  # ValueError: also bytes that are no UTF-8
        return None
    return str(decoded["token"]) if isinstance(decoded, dict) else None


def _headers(message: Message) -> dict[str, str]:
    found = message.headers() or []
    pairs = found.items() if isinstance(found, dict) else found
    return {str(key): value.decode() for key, value in pairs if isinstance(value, bytes)}


def _send(deployment: Deployment, event_type: str, payload: dict[str, str] | None) -> str:
    """Insert the row and delete it in the same transaction: the insert is in the WAL, the table stays clean."""
    event = str(uuid.uuid4())
    source = deployment.pipeline.source
    with postgres_client.connected(deployment.environment.source) as connection, connection.transaction():
        connection.execute(
            _insert(source),
            {
                "id": event,
                "type": CANARY_AGGREGATE,
                "key": KEY,
                "event": event_type,
                "payload": _json(payload),
            },
        )
        connection.execute(
            sql.SQL("delete from {} where {} = %s").format(_table(source), sql.Identifier(source.columns.id)),
            (event,),
        )
    return event


def _json(payload: dict[str, str] | None) -> str | None:
    return None if payload is None else json.dumps(payload)


def _table(source: Source) -> sql.Identifier:
    return sql.Identifier(*source.table.split("."))


def _insert(source: Source) -> sql.Composed:
    columns = source.columns
    names = [columns.id, columns.aggregate_type, columns.aggregate_id, columns.event_type, columns.payload]
    return sql.SQL("insert into {} ({}) values (%(id)s, %(type)s, %(key)s, %(event)s, %(payload)s::jsonb)").format(
        _table(source), sql.SQL(", ").join(map(sql.Identifier, names))
    )


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
        if _headers(message).get("event_id") == event:
            return Seen(Arrival(message, time.monotonic() - started), "arrived")
        seen += 1
        return Seen(None, f"{seen} other records")

    return wait_for("the canary to arrive on its topic", look, seconds=seconds, every=0.01, hint=REMEDY)
