"""Comparison of the canary's record with the contract. The texts never contain the payload."""

from __future__ import annotations

import io
import json
import re
import struct
from dataclasses import dataclass

import fastavro
from confluent_kafka import Message

from outbox_kit.kafka.topic_reader import text_headers
from outbox_kit.pipeline import CANARY_AGGREGATE

KEY = "outbox-canary"
# Header source_sequence, in hex digits: source epoch (4), commit LSN (16), event LSN (16). See docs/contract.md.
SEQUENCE_PATTERN = re.compile(r"^[0-9a-f]{4}_[0-9a-f]{16}-[0-9a-f]{16}$")
WIRE_PREFIX = struct.Struct(">bI")
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
    headers, value = text_headers(message), message.value() or b""
    if headers.get("aggregate_type") != CANARY_AGGREGATE:
        problems.append("header aggregate_type is missing or wrong")
    sequence = headers.get("source_sequence", "")
    if not SEQUENCE_PATTERN.match(sequence):
        problems.append("header source_sequence is missing or malformed")
    elif int(sequence[:4], 16) != contract.source_epoch:
        problems.append(f"source epoch {int(sequence[:4], 16)}, not {contract.source_epoch}")
    magic_byte, schema_id = WIRE_PREFIX.unpack_from(bytes(value)) if len(value) > WIRE_PREFIX.size else (-1, -1)
    if magic_byte != 0 or schema_id not in contract.schemas:
        return [*problems, f"schema id {schema_id} is not in the lock file" if magic_byte == 0 else NOT_AVRO]
    if _token(value[WIRE_PREFIX.size :], contract.schemas[schema_id]) != token:
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
