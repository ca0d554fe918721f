"""Create dead letters in OutboxRouter's format (docs/smt-payloads.md) for rows that cannot be encoded as records."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping
from contextlib import suppress

from outbox_events.contract.dead_letter_headers import CONNECTOR_HEADERS
from outbox_events.kafka.record import Record
from outbox_kit.encoding import headers as record_headers
from outbox_kit.encoding.encoder import MAX_RECORD_BYTES, RecordEncoder
from outbox_kit.encoding.json_values import parse, quote
from outbox_kit.encoding.row import InvalidRowError, OutboxRow, PayloadError, utf16_length

MAX_COORDINATE_LENGTH = 255
JSON_TYPES = ("json", "jsonb")
NOT_FINITE = {math.inf: "Infinity", -math.inf: "-Infinity"}


def dead_letter_record(
    encoder: RecordEncoder,
    row: OutboxRow,
    sequence: str,
    error: InvalidRowError,
    columns: Mapping[str, tuple[str, object]],
) -> Record:
    """Return the dead letter for a row. `columns` maps the name of each column in the row to its type and value."""
    if error.reason != "record-too-large":
        members = [f"{quote(name)}:{_column_json(kind, value)}" for name, (kind, value) in columns.items()]
        members.append(f'"source_sequence":"{sequence}"')
        headers = record_headers.contract_headers(row, sequence, encoder.pipeline.source.header_columns)
        with suppress(InvalidRowError):  # the headers can also be invalid
            headers += record_headers.row_headers(row.headers, encoder.reserved)
        dead_letter = _dead_letter(encoder, row.aggregate_id, "{" + ",".join(members) + "}", headers, error)
        if dead_letter.size <= MAX_RECORD_BYTES:
            return dead_letter
    return _with_coordinates(encoder, row, sequence, error)


def _column_json(kind: str, value: object) -> str:
    if isinstance(value, bytes):
        return quote(base64.b64encode(value).decode())
    if isinstance(value, float) and not math.isfinite(value):
        return quote(NOT_FINITE.get(value, "NaN"))  # JSON does not have these numbers
    return str(value) if kind in JSON_TYPES and value is not None and _is_json(str(value)) else quote(value)


def _is_json(text: str) -> bool:
    try:
        parse(text)
    except PayloadError:
        return False
    return True


def _with_coordinates(encoder: RecordEncoder, row: OutboxRow, sequence: str, error: InvalidRowError) -> Record:
    short = OutboxRow(
        id=_hash_if_long(row.id),
        aggregate_type=_hash_if_long(row.aggregate_type),
        aggregate_id=_hash_if_long(row.aggregate_id),
        event_type=_hash_if_long(row.event_type),
        payload=None,
        event_time=row.event_time,
    )
    data = row.payload.encode(errors="replace") if isinstance(row.payload, str) else row.payload
    value = {
        "id": short.id,
        "aggregate_type": short.aggregate_type,
        "aggregate_id": short.aggregate_id,
        "event_type": short.event_type,
        "source_sequence": sequence,
        "lsn": None,
        "payload_sha256": None if data is None else hashlib.sha256(data).hexdigest(),
        "payload_bytes": len(data or b""),
    }
    headers = record_headers.contract_headers(short, sequence, {})
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _dead_letter(encoder, short.aggregate_id, text, headers, error)


def _dead_letter(
    encoder: RecordEncoder, key: str | None, value: str, headers: record_headers.Headers, error: InvalidRowError
) -> Record:
    # The headers of a row that was created from a dead letter can already contain these names.
    kept = [(name, text) for name, text in headers if name not in CONNECTOR_HEADERS]
    reasons = zip(CONNECTOR_HEADERS, (error.reason, error.message), strict=True)
    return Record(
        topic=encoder.pipeline.dead_letter_topic,
        key=None if key is None else key.encode(errors="replace"),
        value=value.encode(errors="replace"),
        headers=record_headers.encoded([*kept, *reasons]),
    )


def _hash_if_long(text: str | None) -> str | None:
    if text is None or utf16_length(text) <= MAX_COORDINATE_LENGTH:
        return text
    return f"sha256:{hashlib.sha256(text.encode(errors='replace')).hexdigest()}"
