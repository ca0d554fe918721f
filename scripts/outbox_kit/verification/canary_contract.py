"""Comparison of the canary's record with the contract. The texts never contain the payload."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass

import fastavro
from confluent_kafka import Message

from outbox_events.contract import wire_format
from outbox_events.contract.headers import AGGREGATE_TYPE
from outbox_events.contract.source_sequence import version_of
from outbox_events.kafka.record import text_headers
from outbox_kit.pipeline import CANARY_AGGREGATE

KEY = "outbox-canary"
NOT_A_STATE = "the value is null, so that the record is a tombstone and not a state"
NOT_AVRO = "the value has no schema id, because it is not in Confluent's wire format"


@dataclass(frozen=True)
class CanaryContract:
    """Expected content of the canary's record, from lock file and live config.

    `is_strict` is False if the config has no OutboxRouter, because another transform may write another format.
    `schemas` maps schema ids to schemas; the latest schema is first.
    """

    is_strict: bool
    partition_count: int
    source_epoch: int
    schemas: dict[int, str]


def record_problems(message: Message, contract: CanaryContract, token: str) -> list[str]:
    """Return a text for each difference between the record and the contract. `token` is the token that was sent."""
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
    """Return ["wrong key"], or []. Unless `is_strict`, the key may contain other bytes, such as a schema id."""
    key, expected = message.key() or b"", KEY.encode()
    return [] if key == expected or (not contract.is_strict and expected in key) else ["wrong key"]


def _token(avro_body: bytes, schema: str) -> str | None:
    """Return the field `token` of an Avro-encoded record, None if the record cannot be decoded."""
    try:
        record = fastavro.schemaless_reader(io.BytesIO(avro_body), json.loads(schema), None)
    except (EOFError, ValueError, IndexError):  # UnicodeDecodeError is a ValueError
        return None
    return str(record["token"]) if isinstance(record, dict) else None
