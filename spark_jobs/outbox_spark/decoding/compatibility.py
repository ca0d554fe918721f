"""Comparison of writer schemas with the reader schema that defines the columns."""

from __future__ import annotations

import json

from outbox_common.avro_evolution import differences
from outbox_common.avro_schema import Node, load, short_name
from outbox_spark.errors import SchemaError


def check_writer(writer_schema: str, reader_schema: str, subject: str) -> None:
    """Check that the reader schema can read a writer schema (JSON text). In messages `subject` is the writer schema.

    Raises SchemaError for the first field that would be read as a different value. If the records of both schemas have
    the same name, also for the first field that cannot be read. A record with another name is not an earlier version of
    the reader schema: decoding quarantines it if it cannot be read. Unknown enum symbols are quarantined, too.
    """
    same_record = short_name(load(writer_schema).root) == short_name(load(reader_schema).root)
    entries = differences(writer_schema, _with_enum_defaults(reader_schema))
    # Fields that would be read as a different value come first, because no later step detects them.
    for entry in sorted(entries, key=lambda entry: not entry.readable):
        message = f"field {entry.field}: {subject} writes {entry.written}"
        if entry.readable:
            raise SchemaError(
                f"{message}; the newest schema would read the field as {entry.expected}",
                "undo the change of type in the newest schema, or rename the field of the new type",
            )
        if same_record:
            raise SchemaError(
                f"{message}; the newest schema reads {entry.expected}",
                "undo the change in the newest schema, or set `schema_version` to a version that reads both",
            )


def _with_enum_defaults(schema: str) -> str:
    """Add a default to every enum, because an unknown symbol is not an incompatibility: its record is quarantined."""
    return json.dumps(_add_enum_defaults(json.loads(schema)))


def _add_enum_defaults(node: Node) -> Node:
    if isinstance(node, list):
        return [_add_enum_defaults(entry) for entry in node]
    if not isinstance(node, dict):
        return node
    nested = ("type", "items", "values", "fields")
    result = {key: _add_enum_defaults(value) if key in nested else value for key, value in node.items()}
    return {"default": node["symbols"][0], **result} if node.get("type") == "enum" else result
