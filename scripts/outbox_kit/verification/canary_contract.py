"""Is the canary's record what the contract says? Never tells what is in it."""

from __future__ import annotations

import io
import json
import re
import struct
from dataclasses import dataclass

import fastavro
from confluent_kafka import Message

from outbox_kit.pipeline import CANARY_AGGREGATE

KEY = "outbox-canary"
# docs/contract.md: 4 hex source epoch, 16 hex commit LSN, 16 hex event LSN.
SEQUENCE = re.compile(r"^[0-9a-f]{4}_[0-9a-f]{16}-[0-9a-f]{16}$")
FRAME = struct.Struct(">bI")


@dataclass(frozen=True)
class Told:
    """What the record must look like, by lock file and live config.

    `strict` is off where another transform than OutboxRouter makes the record: then its framing is that one's.
    """

    strict: bool
    partitions: int
    epoch: int
    schemas: dict[int, str]
    """By id, newest first."""


def problems(message: Message, told: Told, token: str) -> list[str]:
    """What is wrong with the record, in words."""
    found = key_problems(message, told)
    if not told.strict:
        return found
    given = headers(message)
    if given.get("aggregate_type") != CANARY_AGGREGATE:
        found.append("header aggregate_type is missing or wrong")
    sequence = given.get("source_sequence", "")
    if not SEQUENCE.match(sequence):
        found.append("header source_sequence is missing or malformed")
    elif int(sequence[:4], 16) != told.epoch:
        found.append(f"source epoch {int(sequence[:4], 16)}, not {told.epoch}")
    value = message.value() or b""
    magic, schema_id = FRAME.unpack_from(bytes(value)) if len(value) > FRAME.size else (-1, -1)
    if magic != 0 or schema_id not in told.schemas:
        return [*found, f"schema id {schema_id} is not in the lock file"]
    if _token(value[FRAME.size :], told.schemas[schema_id]) != token:
        found.append("the payload decodes to another token, or not at all")
    return found


def key_problems(message: Message, told: Told) -> list[str]:
    """Whether the key is the aggregate's; where it is framed, whether it contains it."""
    key, wanted = message.key() or b"", KEY.encode()
    return [] if key == wanted or (not told.strict and wanted in key) else ["another key"]


def headers(message: Message) -> dict[str, str]:
    """Headers as text; of a name that comes twice, the last."""
    found = message.headers() or []
    pairs = found.items() if isinstance(found, dict) else found
    return {str(key): value.decode(errors="replace") for key, value in pairs if isinstance(value, bytes)}


def _token(body: bytes, schema: str) -> str | None:
    """The token in an Avro body; None where the body cannot be read."""
    try:
        decoded = fastavro.schemaless_reader(io.BytesIO(body), json.loads(schema), None)
    except (EOFError, ValueError, IndexError):  # ValueError: also bytes that are no UTF-8
        return None
    return str(decoded["token"]) if isinstance(decoded, dict) else None
