"""Whether what a schema writes means to the newest schema what it meant to its writer."""

from __future__ import annotations

import json
from typing import Any

from outbox_kit.avro.evolution import differences
from outbox_spark.decoding.schema_resolution import load
from outbox_spark.errors import SchemaError


def check_writer(writer: str, reader: str, what: str) -> None:
    """Compare a writer's schema with the one that decides the columns, both JSON text.

    `what` names the writer's schema. Raises SchemaError naming the first field that would be read as another value,
    and, of a record of the same name, the first that cannot be read at all. A record of another name is no older
    state of this schema but somebody's mistake: decoding sets it apart where it does not fit. So does it with values
    of an enum that the reader does not know.
    """
    same = _short_name(writer) == _short_name(reader)
    # What would be read as another value goes first: it is the worse news.
    for found in sorted(differences(writer, _with_open_enums(reader)), key=lambda found: not found.readable):
        if found.readable:
            message = (
                f"field {found.field}: {what} writes {found.written}; the newest schema would read it as {found.wanted}"
            )
            raise SchemaError(
                message, "undo the change of type in the newest schema, or give the new field another name"
            )
        if same:
            message = f"field {found.field}: {what} writes {found.written}; the newest schema reads {found.wanted}"
            raise SchemaError(
                message,
                "Avro cannot read one as the other: undo the change in the newest schema, or let `schema_version` name "
                "one that reads both",
            )


def _short_name(schema: str) -> str:
    root = load(schema).root
    return str(root.get("name", "")).rpartition(".")[2] if isinstance(root, dict) else ""


def _with_open_enums(schema: str) -> str:
    """The schema with a default for every enum: a symbol that is missing is a matter of the record that has it."""
    return json.dumps(_opened(json.loads(schema)))


def _opened(node: Any) -> Any:  # noqa: ANN401 - any part of a schema
    if isinstance(node, list):
        return [_opened(part) for part in node]
    if not isinstance(node, dict):
        return node
    parts = {
        key: _opened(value) if key in ("type", "items", "values", "fields") else value for key, value in node.items()
    }
    return {"default": node["symbols"][0], **parts} if node.get("type") == "enum" else parts
