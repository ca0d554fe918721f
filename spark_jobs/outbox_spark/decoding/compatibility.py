"""Check that the reader schema, which defines the columns, can read the records of writer schemas."""

from __future__ import annotations

import json

from outbox_common.avro_evolution import differences
from outbox_events.schemas.avro_schema import Node, load, short_name
from outbox_spark.errors import REBUILD_HINT, SchemaError


def check_writer(writer_schema: str, reader_schema: str, subject: str) -> None:
    """Check that the reader schema can read records of a writer schema. `subject` names the writer schema in messages.

    Raises SchemaError for the first field whose value would be read as a different value, and, if the schemas have the
    same name, for the first field that cannot be read. A schema with another name is not an earlier version of the
    reader schema, so decoding quarantines its unreadable records. Records with unknown enum symbols are quarantined.
    """
    has_same_name = short_name(load(writer_schema).root) == short_name(load(reader_schema).root)
    entries = differences(writer_schema, json.dumps(_with_enum_defaults(json.loads(reader_schema))))
    # Fields that would be read as a different value come first, because no later step detects them.
    for entry in sorted(entries, key=lambda entry: not entry.readable):
        message = f"field {entry.field}: {subject} has {entry.written}; the reader schema has {entry.expected}"
        if entry.readable:
            raise SchemaError(
                f"{message}, and would read a different value",
                "register a schema in which the field has its previous type, and another field the new type; then send "
                "the states again with `outbox backfill --restart`",
            )
        if has_same_name:
            raise SchemaError(
                f"{message}, and cannot read the field",
                "register a schema in which the field has a default or reads both types, such as a union; then, if the "
                f"run asks for it, {REBUILD_HINT}; or set `schema_version` to a version that reads the field",
            )


def _with_enum_defaults(node: Node) -> Node:
    """Add a default to every enum, so that unknown symbols are compatible. Decoding quarantines their records."""
    if isinstance(node, list):
        return [_with_enum_defaults(entry) for entry in node]
    if not isinstance(node, dict):
        return node
    nested = ("type", "items", "values", "fields")
    result = {key: _with_enum_defaults(value) if key in nested else value for key, value in node.items()}
    return {"default": node["symbols"][0], **result} if node.get("type") == "enum" else result
