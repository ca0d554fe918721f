"""Decode Avro bodies, each of which has its own writer schema, into records of the reader schema."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from outbox_events.schemas.avro_schema import Schema, kind_of, load
from outbox_spark.decoding.framing import body_of, has_schema
from outbox_spark.decoding.quarantine_reasons import Reason
from outbox_spark.decoding.schema_resolution import resolvable_schema
from outbox_spark.session.expressions import cached_expressions, prevent_inlining

WriterSchemaItems = tuple[tuple[int | str, str], ...]

# This field is appended to every schema, and these bytes are appended to every Avro-encoded body. The decoded field has
# these bytes only if the body ends where its schema requires. Without the field, a body that cannot be decoded would
# look like a record whose fields are all NULL, and surplus bytes would not be detected. The eight bytes are all
# different, so that surplus bytes cannot produce this value.
_END_NAME = "__outbox_end"
_END_BYTES = b"\xf0\x9e\x55\xc3\x0f\xaa\x81\x37"
_END_FIELD = {"name": _END_NAME, "type": {"type": "fixed", "name": "__outbox.End", "size": len(_END_BYTES)}}

_REBASE_MODE = {"datetimeRebaseMode": "CORRECTED"}
"""Option of from_avro that overrides the setting of the session in which the rows are evaluated."""


def with_records(latest: DataFrame, reader_schema: str, writer_schemas: Mapping[int | str, str]) -> DataFrame:
    """Add `record` (a struct of the reader schema's fields), `problem` (a Reason or NULL) and `deleted` to `latest`.

    `writer_schemas` maps ids and GUIDs to the writer schemas that the registry has.
    """
    items = tuple(writer_schemas.items())
    return latest.select("*", _decoded(reader_schema, items)).select("*", *_problem_and_deleted(items))


@cached_expressions
def _decoded(reader_schema: str, writer_schemas: WriterSchemaItems) -> Expression:
    return prevent_inlining(_record(reader_schema, dict(writer_schemas))).alias("record")


@cached_expressions
def _problem_and_deleted(writer_schemas: WriterSchemaItems) -> list[Expression]:
    value, schema_id, guid = F.col("value"), F.col("__outbox_schema_id"), F.col("__outbox_schema_guid")
    problem = (
        F.when(value.isNull(), F.lit(None))
        .when(schema_id.isNull() & guid.isNull(), F.lit(Reason.NOT_WIRE_FORMAT))
        .when(~has_schema([key for key, _ in writer_schemas]), F.lit(Reason.UNKNOWN_SCHEMA_ID))
        .when(~F.equal_null(F.col(f"record.{_END_NAME}"), F.lit(_END_BYTES)), F.lit(Reason.UNDECODABLE))
    )
    return [problem.alias("problem"), value.isNull().alias("deleted")]


def _record(reader_schema: str, writer_schemas: Mapping[int | str, str]) -> Expression:
    """Return the record, which is NULL if `writer_schemas` lacks its schema. Each schema has its own from_avro call."""
    reader_schema_with_end_field = _with_end_field(reader_schema)
    body = F.concat(body_of(F.col("value"), F.col("id_header"), F.col("__outbox_schema_guid")), F.lit(_END_BYTES))
    # A NULL of the reader schema's type, used if no writer schema is known (for example, for only tombstones).
    null_record = from_avro(F.lit(None).cast("binary"), reader_schema_with_end_field, {"mode": "PERMISSIVE"})
    result: Expression | None = None
    for key, writer_schema in writer_schemas.items():
        if kind_of(load(writer_schema).root) != "record":
            continue
        # The second argument is the writer schema; avroSchema is the reader schema. With PERMISSIVE, a body that cannot
        # be decoded has NULL fields and does not fail the run.
        writer_schema_with_end_field = _with_end_field(resolvable_schema(writer_schema, reader_schema))
        options = {"avroSchema": reader_schema_with_end_field, "mode": "PERMISSIVE", **_REBASE_MODE}
        record = from_avro(body, writer_schema_with_end_field, options)
        has_schema = F.col("__outbox_schema_id" if isinstance(key, int) else "__outbox_schema_guid") == key
        result = F.when(has_schema, record) if result is None else result.when(has_schema, record)
    return null_record if result is None else result


def _with_end_field(schema: str) -> str:
    record_schema: dict[str, Any] = json.loads(schema)
    return json.dumps({**record_schema, "fields": [*record_schema["fields"], _END_FIELD]})


def default_of(schema: Schema, field: Mapping[str, Any]) -> Expression:
    """Return the default of a field of `schema`, as decoded from a record that was written without the field."""
    record_schema = {"type": "record", "name": "outbox.Default", "fields": [field]}
    empty_schema = {**record_schema, "fields": []}
    return from_avro(F.lit(b""), json.dumps(empty_schema), {"avroSchema": schema.text(record_schema), **_REBASE_MODE})[
        field["name"]
    ]


def invalid_utf8(value: Expression, dtype: DataType) -> Expression | None:
    """Return the condition that a string in `value` is not UTF-8; None if `dtype` has no strings. Avro allows it."""
    if isinstance(dtype, StringType):
        return ~F.is_valid_utf8(value)
    if isinstance(dtype, ArrayType):
        return _any_item(value, dtype.elementType)
    if isinstance(dtype, MapType):
        return _any([_any_item(F.map_keys(value), dtype.keyType), _any_item(F.map_values(value), dtype.valueType)])
    if isinstance(dtype, StructType):
        return _any([invalid_utf8(value[field.name], field.dataType) for field in dtype.fields])
    return None


def _any_item(items: Expression, dtype: DataType) -> Expression | None:
    if isinstance(dtype, StringType):
        # The items are joined and checked in one call, because inside `exists`, Spark would resolve is_valid_utf8 for
        # each item. The separator is never part of a multi-byte character.
        return ~F.is_valid_utf8(F.array_join(items, "\n"))
    # If the items contain no strings, `exists` has no condition to evaluate.
    if invalid_utf8(F.lit(None), dtype) is None:
        return None

    def is_invalid(item: Expression) -> Expression:
        condition = invalid_utf8(item, dtype)
        return F.lit(False) if condition is None else F.coalesce(condition, F.lit(False))

    return F.exists(items, is_invalid)


def _any(conditions: Sequence[Expression | None]) -> Expression | None:
    """Combine the conditions with OR, treating NULL as false. Return None if there are no conditions."""
    operands = [F.coalesce(condition, F.lit(False)) for condition in conditions if condition is not None]
    return reduce(or_, operands) if operands else None
