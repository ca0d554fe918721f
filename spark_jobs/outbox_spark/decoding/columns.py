"""From an Avro record schema to the columns of a table. The one list of what each Avro type becomes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from pyspark.sql import Column as Expression
from pyspark.sql import functions as F  # noqa: N812

from outbox_spark.errors import SchemaError

KEY_COLUMN = "aggregate_id"
METADATA_COLUMNS = ["_sequence", "_partition_epoch", "_partition", "_offset", "_timestamp"]
"""Where a row comes from; the same columns in every target."""

OUTCOME_COLUMNS = ["_deleted", "_reason", "_schema_id", "_key", "_value"]
"""What is to be done with a decoded row. `_reason` is set for what goes to quarantine; `_key` and `_value`
(binary) only for those."""

STALE_COLUMN = "_stale"
"""True while the newest record of the key is in quarantine: the row shows an older state."""
DELETED_AT_COLUMN = "_deleted_at"
"""In tables with soft deletes: the Kafka timestamp of the tombstone; NULL while the key is there."""
VALID_FROM_COLUMN, VALID_TO_COLUMN = "_valid_from", "_valid_to"
"""In history tables: Kafka timestamps of this version and of the one that ended it; NULL for the current one."""

RESERVED_COLUMNS = frozenset(
    [
        *METADATA_COLUMNS,
        *OUTCOME_COLUMNS,
        STALE_COLUMN,
        DELETED_AT_COLUMN,
        VALID_FROM_COLUMN,
        VALID_TO_COLUMN,
    ]
)
MAX_PRECISION = 38  # of decimals, in Spark
DAY_MICROS = 86_400_000_000
_UUID_SIZE = 16
_UUID_PATTERN = "^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$"


class Kind(StrEnum):
    """What a column holds, by its name in PostgreSQL; numeric has precision and scale besides."""

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


_PLAIN = {
    "string": Kind.TEXT,
    "enum": Kind.TEXT,
    "int": Kind.INTEGER,
    "long": Kind.BIGINT,
    "float": Kind.REAL,
    "double": Kind.DOUBLE,
    "boolean": Kind.BOOLEAN,
    "bytes": Kind.BYTES,
    "fixed": Kind.BYTES,
    "array": Kind.JSON,
    "map": Kind.JSON,
    "record": Kind.JSON,
}
_LOGICAL = {
    ("string", "uuid"): Kind.UUID,
    ("fixed", "uuid"): Kind.UUID,
    ("int", "date"): Kind.DATE,
    ("int", "time-millis"): Kind.TIME,
    ("long", "time-micros"): Kind.TIME,
    ("long", "timestamp-millis"): Kind.TIMESTAMPTZ,
    ("long", "timestamp-micros"): Kind.TIMESTAMPTZ,
    ("long", "local-timestamp-millis"): Kind.TIMESTAMP,
    ("long", "local-timestamp-micros"): Kind.TIMESTAMP,
    ("bytes", "decimal"): Kind.NUMERIC,
    ("fixed", "decimal"): Kind.NUMERIC,
}


@dataclass(frozen=True)
class Column:
    """One field of the reader schema as a column."""

    name: str
    kind: Kind
    avro_type: str
    """string, int, long, ..., or the logical type where it decides the encoding: time-millis."""
    precision: int = 0
    scale: int = 0
    has_default: bool = False
    """Whether the field has a default other than null: rows from before the field show it."""
    doc: str = ""
    """What the schema says of the field: the comment of the column."""

    def value(self, raw: Expression) -> Expression:
        """What from_avro yields for this field, in the type that every target gets.

        uuid is its 36-character text; a time of day is text `HH:MM:SS.ffffff`, because the lake formats
        have no such type; everything else is what from_avro yields.
        """
        if self.kind is Kind.UUID and self.avro_type == "fixed":
            return F.regexp_replace(F.lower(F.hex(raw)), "^(.{8})(.{4})(.{4})(.{4})(.{12})$", "$1-$2-$3-$4-$5")
        if self.kind is Kind.TIME:
            return F.date_format(F.timestamp_micros(self._micros(raw)), "HH:mm:ss.SSSSSS")
        return raw

    def invalid(self, raw: Expression) -> Expression | None:
        """True where a value that Avro could decode is none of the logical type; None: always valid."""
        if self.kind is Kind.UUID and self.avro_type == "string":
            return ~F.rlike(raw, F.lit(_UUID_PATTERN))
        if self.kind is Kind.TIME:
            return ~self._micros(raw).between(0, DAY_MICROS - 1)
        return None

    def _micros(self, raw: Expression) -> Expression:
        return raw.cast("long") * 1000 if self.avro_type == "time-millis" else raw


def columns_of(schema: str, subject: str) -> list[Column]:
    """Columns of an Avro record schema (JSON text), in its order, the key and metadata columns not included.

    Raises SchemaError for what cannot be a table.
    """
    record = json.loads(schema)
    if not isinstance(record, dict) or record.get("type") != "record":
        raise SchemaError(f"{subject} is not a record", "a materialized topic holds one record per aggregate")
    named: dict[str, Any] = {}
    _collect_names(record, record.get("namespace", ""), named)
    namespace = record.get("namespace", "")
    columns = [
        replace(_column(field, namespace, named, subject), doc=str(field.get("doc") or ""))
        for field in record["fields"]
    ]
    _check_names(columns, subject)
    return columns


def _column(field: Mapping[str, Any], namespace: str, named: Mapping[str, Any], subject: str) -> Column:
    name = str(field["name"])
    has_default = field.get("default") is not None
    base = _without_null(field["type"])
    if isinstance(base, str) and base not in _PLAIN:
        base = named.get(base) or named.get(f"{namespace}.{base}", base)
    if isinstance(base, list):
        kind = _union_kind(base)
        return Column(name, kind, "union", has_default=has_default)
    definition: Mapping[str, Any] = {"type": base} if isinstance(base, str) else base
    avro_type, logical = str(definition["type"]), str(definition.get("logicalType", ""))
    if avro_type not in _PLAIN:
        raise SchemaError(f"{subject}: field {name} has type {avro_type!r}", "such a field cannot be a column")
    # Avro's own rule: a logical type that is not known is ignored.
    kind = _LOGICAL.get((avro_type, logical), _PLAIN[avro_type])
    if kind is Kind.UUID and avro_type == "fixed" and definition["size"] != _UUID_SIZE:
        kind = Kind.BYTES
    if kind is Kind.NUMERIC:
        return _numeric(name, avro_type, definition, subject, has_default=has_default)
    return Column(name, kind, logical if kind is Kind.TIME else avro_type, has_default=has_default)


def _numeric(name: str, avro_type: str, definition: Mapping[str, Any], subject: str, *, has_default: bool) -> Column:
    precision, scale = int(definition["precision"]), int(definition.get("scale", 0))
    if precision > MAX_PRECISION:
        message = f"{subject}: field {name} is a decimal of precision {precision}; Spark holds {MAX_PRECISION}"
        raise SchemaError(message, "declare a smaller precision, or use a string")
    return Column(name, Kind.NUMERIC, avro_type, precision, scale, has_default)


def _without_null(avro_type: object) -> Any:  # noqa: ANN401 - any node of an Avro schema
    if not isinstance(avro_type, list):
        return avro_type
    others = [branch for branch in avro_type if branch != "null"]
    return others[0] if len(others) == 1 else others


def _union_kind(branches: list[Any]) -> Kind:
    """Spark reads {int, long} as long and {float, double} as double; any other union as a struct."""
    plain = {branch for branch in branches if isinstance(branch, str)}
    if len(plain) == len(branches):
        if plain == {"int", "long"}:
            return Kind.BIGINT
        if plain == {"float", "double"}:
            return Kind.DOUBLE
    return Kind.JSON


def _collect_names(node: Any, namespace: str, named: dict[str, Any]) -> None:  # noqa: ANN401 - Avro schema
    """Definitions of named types by full name: a later field may refer to one by name."""
    if isinstance(node, list):
        for branch in node:
            _collect_names(branch, namespace, named)
    elif isinstance(node, dict):
        inner = str(node.get("namespace", namespace))
        if "name" in node and node.get("type") in ("record", "enum", "fixed"):
            name = str(node["name"])
            named[name if "." in name or not inner else f"{inner}.{name}"] = node
        for part in ("fields", "items", "values", "type"):
            _collect_names(node.get(part), inner, named)


def _check_names(columns: list[Column], subject: str) -> None:
    seen = {KEY_COLUMN}
    for column in columns:
        # Spark and the lake formats take names that differ in case for the same.
        name = column.name.lower()
        if name == KEY_COLUMN:
            raise SchemaError(f"{subject}: field {column.name} has the name of the key column", "rename it")
        if name in seen:
            message = f"{subject}: two fields are named {column.name}, but for upper and lower case"
            raise SchemaError(message, "rename one of them")
        if name in RESERVED_COLUMNS:
            raise SchemaError(f"{subject}: field {column.name} has the name of a column of the job", "rename it")
        seen.add(name)
