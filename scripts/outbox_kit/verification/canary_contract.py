"""Comparison of the canary's record with the contract. Messages never contain the payload."""

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
# docs/contract.md: 4 hex source epoch, 16 hex commit LSN, 16 hex event LSN.
SEQUENCE_PATTERN = re.compile(r"^[0-9a-f]{4}_[0-9a-f]{16}-[0-9a-f]{16}$")
FRAME = struct.Struct(">bI")


@dataclass(frozen=True)
class CanaryContract:
    """Expected content of the canary's record, from lock file and live config.

    `strict` is False if the config has no OutboxRouter, because another transform may write another format. `schemas`
    maps schema ids to schemas; the latest schema is first.
    """

    strict: bool
    partitions: int
    epoch: int
    schemas: dict[int, str]


def record_problems(message: Message, contract: CanaryContract, token: str) -> list[str]:
    """Return the differences between the record and the contract."""
    problems = key_problems(message, contract)
    if not contract.strict:
        return problems
    headers = text_headers(message)
    if headers.get("aggregate_type") != CANARY_AGGREGATE:
        problems.append("header aggregate_type is missing or wrong")
    sequence = headers.get("source_sequence", "")
    if not SEQUENCE_PATTERN.match(sequence):
        problems.append("header source_sequence is missing or malformed")
    elif int(sequence[:4], 16) != contract.epoch:
        problems.append(f"source epoch {int(sequence[:4], 16)}, not {contract.epoch}")
    value = message.value() or b""
    magic, schema_id = FRAME.unpack_from(bytes(value)) if len(value) > FRAME.size else (-1, -1)
    if magic != 0 or schema_id not in contract.schemas:
        return [*problems, f"schema id {schema_id} is not in the lock file"]
    if _token(value[FRAME.size :], contract.schemas[schema_id]) != token:
        problems.append("the payload does not decode to the token that was sent")
    return problems


def key_problems(message: Message, contract: CanaryContract) -> list[str]:
    """Return the problem of the key, if any. Unless `strict`, the key may have a prefix, such as a schema id."""
    key, expected = message.key() or b"", KEY.encode()
    return [] if key == expected or (not contract.strict and expected in key) else ["wrong key"]


def _token(body: bytes, schema: str) -> str | None:
    """Return the token in an Avro body, None if the body cannot be decoded."""
    try:
        record = fastavro.schemaless_reader(io.BytesIO(body), json.loads(schema), None)
    except (EOFError, ValueError, IndexError):  # UnicodeDecodeError is a ValueError
        return None
    return str(record["token"]) if isinstance(record, dict) else None
