"""Versions of the accounts in the values of delivered records."""

from __future__ import annotations

import io
import json

import fastavro

from outbox_events.contract import wire_format
from outbox_lab.drill.project import SCHEMA

PARSED_SCHEMA = fastavro.parse_schema(SCHEMA)


def version_of(value: bytes | None) -> int | None:
    """Return the version in a value, which is Avro or JSON; None for a tombstone. Raises ValueError for other values.

    Avro is read with the schema of the drill, the only one that its pipelines have.
    """
    if value is None:
        return None
    if wire_format.schema_id(value) is None:
        return int(json.loads(value)["version"])
    state = fastavro.schemaless_reader(io.BytesIO(wire_format.body(value)), PARSED_SCHEMA, None)
    return int(state["version"])  # type: ignore[call-overload,index]
