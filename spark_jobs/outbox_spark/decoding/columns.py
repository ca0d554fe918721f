"""Derive the columns of a table from an Avro record schema, and the type of each column from the field's Avro type."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from pyspark.sql import Column as Expression
from pyspark.sql import functions as F  # noqa: N812

from outbox_common.column_problems import column_problems, reserved_by
from outbox_events.schemas.avro_schema import Node, Schema, kind_of, load
from outbox_spark.errors import SchemaError

KEY_COLUMN = "aggregate_id"
METADATA_COLUMNS = ["_sequence", "_partition_epoch", "_partition", "_offset", "_timestamp"]
"""Columns in every table that store the version, partition, offset and timestamp of a row's Kafka record."""

OUTCOME_COLUMNS = [
    "__outbox_deleted",
    "__outbox_reason",
    "__outbox_schema_id",
    "__outbox_key",
    "__outbox_value",
    "__outbox_schema_header",
]
"""Columns with the result of decoding. Reason, key, value and schema header are NULL if the record is readable."""

STALE_COLUMN = "_stale"
"""True while the newest record of the key is in quarantine, so that the row has an older state."""
DELETED_AT_COLUMN = "_deleted_at"
"""In tables with soft deletes: the Kafka timestamp of the tombstone; NULL while the key exists."""
VALID_FROM_COLUMN, VALID_TO_COLUMN = "_valid_from", "_valid_to"
"""In history tables: Kafka timestamps of this version and its successor; `_valid_to` is NULL without a successor."""

ROW_STATE_COLUMNS = [STALE_COLUMN, DELETED_AT_COLUMN, VALID_FROM_COLUMN]
"""Columns by which outbox-reconcile determines whether a row's state is correct. It does not check older versions."""

DAY_MICROS = 86_400_000_000
_UUID_SIZE = 16
# In Java's patterns, $ also matches before a line feed at the end of the text, unlike \z.
UUID_PATTERN = r"^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\z"


class ColumnType(StrEnum):
    """Type of a column. The value is the type's name in PostgreSQL. A numeric column also has precision and scale."""

    TEXT = "text"
    UUID = "uuid"
    INTEGER = "integer"
    BIGINT = "bigint"
    REAL = "real"
    DOUBLE = "double precision"
    BOOLEAN = "boolean"
    NUMERIC = "numeric"
    DATE = "date"
    TIME = "time without time zone"
    TIMESTAMP = "timestamp without time zone"
    TIMESTAMPTZ = "timestamp with time zone"
    BYTES = "bytea"
    JSON = "jsonb"


_TYPES = {
    "string": ColumnType.TEXT,
    "enum": ColumnType.TEXT,
    "int": ColumnType.INTEGER,
    "long": ColumnType.BIGINT,
    "float": ColumnType.REAL,
    "double": ColumnType.DOUBLE,
    "boolean": ColumnType.BOOLEAN,
    "bytes": ColumnType.BYTES,
    "fixed": ColumnType.BYTES,
    "array": ColumnType.JSON,
    "map": ColumnType.JSON,
    "record": ColumnType.JSON,
}
_LOGICAL_TYPES = {
    ("string", "uuid"): ColumnType.UUID,
    ("fixed", "uuid"): ColumnType.UUID,
    ("int", "date"): ColumnType.DATE,
    ("int", "time-millis"): ColumnType.TIME,
    ("long", "time-micros"): ColumnType.TIME,
    ("long", "timestamp-millis"): ColumnType.TIMESTAMPTZ,
    ("long", "timestamp-micros"): ColumnType.TIMESTAMPTZ,
    ("long", "local-timestamp-millis"): ColumnType.TIMESTAMP,
    ("long", "local-timestamp-micros"): ColumnType.TIMESTAMP,
    ("bytes", "decimal"): ColumnType.NUMERIC,
    ("fixed", "decimal"): ColumnType.NUMERIC,
}
_WIDENINGS = frozenset(
    {
        # The numeric promotions of Avro's schema resolution, except those from int and long to float.
        (ColumnType.INTEGER, ColumnType.BIGINT),
        (ColumnType.INTEGER, ColumnType.DOUBLE),
        (ColumnType.BIGINT, ColumnType.DOUBLE),
        (ColumnType.REAL, ColumnType.DOUBLE),
    }
)
_DECIMAL_PATTERN = re.compile(r"(?:numeric|decimal)\((\d+),(\d+)\)")


@dataclass(frozen=True)
class Column:
    """A column of a table, derived from one field of the reader schema."""

    name: str
    kind: ColumnType
    avro_type: str
    """Avro type (string, union, ...); for times of day, the logical type (time-millis, time-micros)."""
    precision: int = 0
    scale: int = 0
    has_default: bool = False
    """Whether the field has a non-null default. When the column is added, existing rows get this default."""
    doc: str = ""
    """Documentation of the field, which becomes the comment of the column."""
    aliases: tuple[str, ...] = ()
    """Earlier names of the field."""

    def value(self, raw: Expression) -> Expression:
        """Convert a decoded value to the type that all targets receive.

        A uuid becomes text of 36 characters. A time of day becomes text, `HH:MM:SS.ffffff`, because the lake formats
        have no type for times of day. Other types are unchanged.
        """
        if self.kind is ColumnType.UUID and self.avro_type == "fixed":
            return F.regexp_replace(F.lower(F.hex(raw)), "^(.{8})(.{4})(.{4})(.{4})(.{12})$", "$1-$2-$3-$4-$5")
        if self.kind is ColumnType.TIME:
            return _time_text(self._micros(raw))
        return raw

    def is_invalid(self, raw: Expression) -> Expression | None:
        """Return the condition under which a value is invalid for the logical type; None if every value is valid."""
        if self.kind is ColumnType.UUID and self.avro_type == "string":
            return ~F.rlike(raw, F.lit(UUID_PATTERN))
        if self.kind is ColumnType.TIME:
            return ~self._micros(raw).between(0, DAY_MICROS - 1)
        return None

    def _micros(self, raw: Expression) -> Expression:
        return raw.cast("long") * 1000 if self.avro_type == "time-millis" else raw


def _time_text(micros: Expression) -> Expression:
    """Return a time of day, given in microseconds since midnight, as text of the form `HH:MM:SS.ffffff`.

    The result of date_format would depend on the settings of the session in which the rows are evaluated.
    """
    seconds = F.floor(micros / 1_000_000)
    hours, minutes = F.floor(seconds / 3600), F.floor(seconds / 60) % 60
    colon = F.lit(":")
    return F.concat(
        _digits(hours, 2), colon, _digits(minutes, 2), colon, _digits(seconds % 60, 2), F.lit("."),
        _digits(micros % 1_000_000, 6),
    )  # fmt: skip


def _digits(number: Expression, count: int) -> Expression:
    return F.lpad(number.cast("string"), count, "0")


def columns_of(schema: str, subject: str) -> list[Column]:
    """Return the columns of an Avro record schema (JSON text) in field order, without key and metadata columns.

    Raises SchemaError if the schema cannot be mapped to columns.
    """
    tree = load(schema)
    if kind_of(tree.root) != "record":
        raise SchemaError(f"the schema of {subject} is not a record", "register a schema of type record")
    for problem in column_problems(tree):
        raise SchemaError(f"{subject}: {problem.message}", problem.remedy)
    return [
        replace(
            _column(field, tree, subject), doc=str(field.get("doc") or ""), aliases=tuple(field.get("aliases") or ())
        )
        for field in tree.root["fields"]
    ]


def _column(field: Mapping[str, Any], tree: Schema, subject: str) -> Column:
    name = str(field["name"])
    has_default = field.get("default") is not None
    non_null_type = tree.definition(_non_null_type(field["type"]))
    if isinstance(non_null_type, list):
        kind = _union_column_type(non_null_type)
        return Column(name, kind, "union", has_default=has_default)
    definition: Mapping[str, Any] = {"type": non_null_type} if isinstance(non_null_type, str) else non_null_type
    avro_type, logical_type = str(definition["type"]), str(definition.get("logicalType", ""))
    if avro_type not in _TYPES:
        raise SchemaError(f"{subject}: field {name} has the type {avro_type!r}", "use a type that Avro specifies")
    # As Avro specifies, an unknown logical type is ignored.
    kind = _LOGICAL_TYPES.get((avro_type, logical_type), _TYPES[avro_type])
    if kind is ColumnType.UUID and avro_type == "fixed" and definition["size"] != _UUID_SIZE:
        kind = ColumnType.BYTES
    if kind is ColumnType.NUMERIC:
        precision, scale = int(definition["precision"]), int(definition.get("scale", 0))
        return Column(name, kind, avro_type, precision, scale, has_default)
    return Column(name, kind, logical_type if kind is ColumnType.TIME else avro_type, has_default=has_default)


def _non_null_type(avro_type: Node) -> Node:
    if not isinstance(avro_type, list):
        return avro_type
    branches = [branch for branch in avro_type if branch != "null"]
    return branches[0] if len(branches) == 1 else branches


def _union_column_type(branches: list[Any]) -> ColumnType:
    """Return a union's column type. Spark reads {int, long} as long, {float, double} as double, others as structs."""
    primitive_types = {branch for branch in branches if isinstance(branch, str)}
    if len(primitive_types) == len(branches):
        if primitive_types == {"int", "long"}:
            return ColumnType.BIGINT
        if primitive_types == {"float", "double"}:
            return ColumnType.DOUBLE
    return ColumnType.JSON


def check_reserved(columns: Sequence[Column], subject: str, target_kind: str) -> None:
    """Raise SchemaError if a field has a name that the targets of this kind reserve."""
    for column in columns:
        reason = reserved_by(column.name, target_kind)
        if reason is not None:
            raise SchemaError(f"{subject}: field {column.name} cannot have this name: {reason}", "rename the field")


def is_widening(actual: str, desired: str) -> bool:
    """Return whether a column of type `actual` can be changed to `desired`; both types are results of format_type().

    The change from bigint to double precision is included, although doubles are exact only up to 2^53, because every
    Avro reader with the newest schema reads such a field as a double.
    """
    return (actual, desired) in _WIDENINGS or has_greater_precision(actual, desired)


def has_greater_precision(actual: str, desired: str) -> bool:
    """Return whether `desired` is a decimal type with more digits than `actual`, and with the same scale."""
    actual_decimal, desired_decimal = _DECIMAL_PATTERN.fullmatch(actual), _DECIMAL_PATTERN.fullmatch(desired)
    if actual_decimal is None or desired_decimal is None:
        return False
    return actual_decimal[2] == desired_decimal[2] and int(actual_decimal[1]) < int(desired_decimal[1])
