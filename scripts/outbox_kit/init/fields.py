"""Derive the fields of an aggregate's state from its tables: Avro types, and the SQL expressions of their values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from psycopg import sql

from outbox_common.column_problems import MAX_POSTGRES_BYTES, MAX_PRECISION, TARGET_KINDS, reserved_by
from outbox_kit.init.aggregates import AggregateTables, Node, unique_name
from outbox_kit.init.catalog import Column, ColumnType

AVRO_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PRIMITIVES = {
    "bool": "boolean", "int2": "int", "int4": "int", "int8": "long", "float4": "float", "float8": "double",
    "bytea": "bytes",
}  # fmt: skip
LOGICAL_TYPES = {
    "uuid": ("string", "uuid"),
    "date": ("int", "date"),
    "time": ("long", "time-micros"),
    "timestamp": ("long", "local-timestamp-micros"),
    "timestamptz": ("long", "timestamp-micros"),
}
CONVERSIONS = {
    # to_jsonb() would write the offset of the session's time zone.
    "timestamptz": sql.SQL("(to_jsonb({} at time zone 'UTC') #>> '{{}}') || 'Z'"),
    # to_jsonb() would write the form that bytea_output selects.
    "bytea": sql.SQL("'\\x' || encode({}, 'hex')"),
}
"""SQL of the JSON for types whose result of to_jsonb() depends on settings of the session."""
# The conversion applies to one-dimensional arrays. Others, which Avro does not have, remain nested.
CONVERTED_ARRAY = sql.SQL(
    "case when array_ndims({array}) = 1 then (select jsonb_agg({item} order by item.position) "
    "from unnest({array}) with ordinality as item (value, position)) else to_jsonb({array}) end"
)
TEXT_TYPES = frozenset({"text", "varchar", "bpchar", "citext", "name"})
JSON_TYPES = frozenset({"json", "jsonb"})


@dataclass(frozen=True)
class Field:
    """A field of a record. It has the value of a column, or contains the rows of a part."""

    name: str
    type: Any
    content: sql.Composable | RecordFields
    """SQL expression of a column's value, or the fields of a part's rows."""
    comment: str = ""
    note: str = ""
    """Why the type is a choice, or empty."""

    def definition(self) -> dict[str, Any]:
        """Return the field of the Avro schema."""
        field: dict[str, Any] = {"name": self.name, "type": self.type}
        doc = "; ".join(filter(None, (self.comment, self.note)))
        if doc:
            field["doc"] = doc
        if isinstance(self.type, list):
            field["default"] = None
        elif isinstance(self.content, RecordFields):
            field["default"] = []
        return field


@dataclass(frozen=True)
class RecordFields:
    """The fields of the rows of one table of an aggregate."""

    node: Node
    alias: str
    fields: tuple[Field, ...]


def state_fields(aggregate: AggregateTables) -> RecordFields:
    """Return the fields of the aggregate's state. Parts are fields that contain an array of records, or one record."""
    return _Derivation(aggregate.name).record(aggregate.root, _pascal(aggregate.name))


def schema(aggregate: AggregateTables, namespace: str) -> dict[str, Any]:
    """Return the Avro schema of the aggregate's state."""
    record = state_fields(aggregate)
    doc = record.node.table.comment
    return {
        "type": "record",
        "name": _pascal(aggregate.name),
        "namespace": namespace,
        **({"doc": doc} if doc else {}),
        "fields": [field.definition() for field in record.fields],
    }


class _Derivation:
    """Derives the fields of one aggregate, and gives each record and enum of its schema another name."""

    def __init__(self, aggregate: str) -> None:
        self._type_names = {_pascal(aggregate)}
        self._aliases = 0

    def record(self, node: Node, name: str) -> RecordFields:
        self._aliases += 1
        alias, taken = f"t{self._aliases}", set[str]()
        fields = [self._column(column, alias, name, taken) for column in node.table.columns]
        parts = [self._part(child, name, taken) for child in node.children]
        return RecordFields(node, alias, (*fields, *parts))

    def _column(self, column: Column, alias: str, record: str, taken: set[str]) -> Field:
        name = _field_name(column.name, taken)
        reference = sql.SQL("{}.{}").format(sql.SQL(alias), sql.Identifier(column.name))
        avro_type, value, note = self._value(column.type, reference, record + _pascal(name), column.sql_type)
        return Field(name, ["null", avro_type] if column.is_nullable else avro_type, value, column.comment, note)

    def _part(self, node: Node, record: str, taken: set[str]) -> Field:
        name = _field_name(node.table.name, taken)
        part_name = self._type_name(record + _pascal(name))
        part = self.record(node, part_name)
        definition = {"type": "record", "name": part_name, "fields": [field.definition() for field in part.fields]}
        avro_type: Any = ["null", definition] if node.is_single else {"type": "array", "items": definition}
        return Field(name, avro_type, part, node.table.comment)

    def _value(
        self, column_type: ColumnType, value: sql.Composable, type_name: str, sql_type: str
    ) -> tuple[Any, sql.Composable, str]:
        """Return the Avro type of a value, the SQL expression that converts it for JSON, and a note on the choice."""
        if column_type.element is not None and column_type.element.element is None:
            return self._array(column_type.element, value, type_name, sql_type)
        if column_type.labels and all(map(AVRO_NAME.fullmatch, column_type.labels)):
            definition = {"type": "enum", "name": self._type_name(type_name), "symbols": list(column_type.labels)}
            return definition, value, ""
        avro_type = _plain_type(column_type)
        if avro_type is not None:
            conversion = CONVERSIONS.get(column_type.name)
            return avro_type, value if conversion is None else conversion.format(value), ""
        note = "" if column_type.name in TEXT_TYPES else _note(column_type.name, sql_type)
        return "string", sql.SQL("{}::text").format(value), note

    def _array(
        self, element: ColumnType, value: sql.Composable, type_name: str, sql_type: str
    ) -> tuple[Any, sql.Composable, str]:
        """Return the type of an array, the SQL expression and the note. PostgreSQL allows null in every array."""
        items, _, note = self._value(element, value, type_name, sql_type)
        conversion = CONVERSIONS.get(element.name)
        if items == "string":
            converted: sql.Composable = sql.SQL("{}::text[]").format(value)
        elif conversion is not None:
            converted = CONVERTED_ARRAY.format(array=value, item=conversion.format(sql.SQL("item.value")))
        else:
            converted = value
        return {"type": "array", "items": ["null", items]}, converted, note

    def _type_name(self, name: str) -> str:
        unique = unique_name(name, self._type_names, MAX_POSTGRES_BYTES)
        self._type_names.add(unique)
        return unique


def open_choices(record: RecordFields, prefix: str = "") -> Iterator[str]:
    """Yield the fields whose type is a choice, with the reason, as `field: reason`."""
    for field in record.fields:
        if field.note:
            yield f"{prefix}{field.name}: {field.note}"
        if isinstance(field.content, RecordFields):
            yield from open_choices(field.content, f"{prefix}{field.name}.")


def _note(name: str, sql_type: str) -> str:
    if name == "numeric":
        return f"{sql_type} as text, which keeps all digits; a decimal type needs a precision and a scale"
    return f"JSON text of {sql_type}" if name in JSON_TYPES else f"text of {sql_type}"


def _plain_type(column_type: ColumnType) -> Any:  # noqa: ANN401 - any Avro type
    """Return the Avro type of values that jsonb represents without a conversion, or None."""
    name = column_type.name
    if not column_type.is_builtin:
        return None
    if name in PRIMITIVES:
        return PRIMITIVES[name]
    if name in LOGICAL_TYPES:
        return _logical(name)
    return _decimal(column_type.modifier) if name == "numeric" else None


def _logical(name: str) -> dict[str, str]:
    primitive, logical_type = LOGICAL_TYPES[name]
    return {"type": primitive, "logicalType": logical_type}


def _decimal(modifier: int) -> dict[str, Any] | None:
    """Return the decimal type of numeric(precision, scale), or None if Avro or Spark does not support it."""
    if modifier < 0:
        return None
    # The modifier is 4 (the size of a header) more than the precision in the upper and the scale in the lower 16 bits;
    # the scale is a signed number of 11 bits.
    precision, scale = (modifier - 4) >> 16, (((modifier - 4) & 0x7FF) ^ 1024) - 1024
    if not 0 <= scale <= precision <= MAX_PRECISION:
        return None
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def _field_name(name: str, taken: set[str]) -> str:
    """Return a name that Avro and the tables of every kind of target accept, and that is unique regardless of case."""
    field = re.sub(r"[^A-Za-z0-9_]", "_", name)
    if not AVRO_NAME.fullmatch(field):
        field = f"_{field}"
    if any(reserved_by(field[:MAX_POSTGRES_BYTES], kind) for kind in ("", *TARGET_KINDS)):
        field = f"{field.strip('_')}_value"
    unique = unique_name(field, taken, MAX_POSTGRES_BYTES)
    taken.add(unique)
    return unique


def _pascal(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))
