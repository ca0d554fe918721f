"""Inserts single outbox rows, and reads what was delivered for them."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import psycopg
from confluent_kafka import Message
from psycopg import sql
from tests.integration.support import headers, wait_record

from outbox_kit.deployment import Deployment

RUNNING = "connector RUNNING, tasks: RUNNING"


def insert(
    dsn: str,
    table: str,
    kind: str,
    key: str,
    payload: str | bytes | None,
    *,
    event_type: str = "Changed",
    **columns: str,
) -> str:
    """Insert one outbox row in a transaction. Return its id. `columns` contains additional columns."""
    event = str(uuid4())
    row = {"id": event, "aggregate_type": kind, "aggregate_id": key, "event_type": event_type, "payload": payload}
    row |= columns
    statement = sql.SQL("insert into {} ({}) values ({})").format(
        sql.Identifier(*table.split(".")),
        sql.SQL(", ").join(map(sql.Identifier, row)),
        sql.SQL(", ").join([sql.Placeholder()] * len(row)),
    )
    with psycopg.connect(dsn) as connection:
        connection.execute(statement, list(row.values()))
    return event


def schema_id(message: Message) -> int:
    return int.from_bytes((message.value() or b"")[1:5], "big")


def ids_by_version(deployment: Deployment, aggregate: str) -> dict[int, int]:
    lock = deployment.lock()
    assert lock is not None
    return {entry.version: entry.id for entry in lock.schemas[aggregate]}


def read_dead_letter(deployment: Deployment, event: str) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the headers and value of the dead letter of an event."""
    message = wait_record(deployment, f"{deployment.pipeline.prefix}.dead-letter", 1, event)
    return headers(message), json.loads(message.value() or b"")


def connector_state(deployment: Deployment) -> str:
    status = deployment.connect.status(deployment.pipeline.connector.name)
    return status.text if status else "absent"


LOAN_1 = {
    "type": "record",
    "name": "Loan",
    "namespace": "io.outboxkit.typed",
    "fields": [{"name": "id", "type": "string"}, {"name": "shelf", "type": "string", "default": "none"}],
}
LOAN_2 = {
    **LOAN_1,
    "fields": [{"name": "branch", "type": "string", "default": "main"}, {"name": "id", "type": "string"}],
}
