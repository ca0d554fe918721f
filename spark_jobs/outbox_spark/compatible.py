"""Whether what a schema writes means to the newest schema what it meant to its writer."""

from __future__ import annotations

from outbox_kit.avro.evolution import differences
from outbox_spark.errors import SchemaError


def check_writer(writer: str, reader: str, what: str) -> None:
    """Compare a writer's schema with the newest one, both JSON text. Raises SchemaError naming the first field.

    `what` names the writer's schema. Schemas that Avro cannot resolve at all pass: decoding tells.
    """
    for found in differences(writer, reader):
        if found.readable:
            message = (
                f"field {found.field}: {what} writes {found.written}; the newest schema would read it as {found.wanted}"
            )
            raise SchemaError(
                message, "undo the change of type in the newest schema, or give the new field another name"
            )
