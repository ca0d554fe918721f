"""Comparison of writer schemas with the reader schema that defines the columns."""

from __future__ import annotations

import json

from outbox_common.avro_evolution import differences
from outbox_common.avro_schema import Node, load, short_name
from outbox_spark.errors import SchemaError


def check_writer(writer: str, reader: str, subject: str) -> None:
    """Compare a writer's schema with the reader's, both as JSON text; messages call the writer's schema `subject`.

    Raises SchemaError for the first field that would be read as a different value and, for a record of the same name,
    for the first field that cannot be read. Records of another name are not earlier versions of this schema: decoding
    quarantines those that do not fit, and records with unknown enum symbols.
    """
    same_record = short_name(load(writer).root) == short_name(load(reader).root)
    # Fields that would be misread come first, because no later step detects them.
    for entry in sorted(differences(writer, _with_enum_defaults(reader)), key=lambda entry: not entry.readable):
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
    """Add a default to every enum: an unknown symbol quarantines its record, but does not make schemas incompatible."""
    return json.dumps(_add_enum_defaults(json.loads(schema)))


def _add_enum_defaults(node: Node) -> Node:
    if isinstance(node, list):
        return [_add_enum_defaults(entry) for entry in node]
    if not isinstance(node, dict):
        return node
    nested = ("type", "items", "values", "fields")
    result = {key: _add_enum_defaults(value) if key in nested else value for key, value in node.items()}
    return {"default": node["symbols"][0], **result} if node.get("type") == "enum" else result
