"""Decoding of Avro bodies with their writers' schemas, to records of the reader's schema."""

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

from outbox_common.avro_schema import Schema, kind_of, load
from outbox_spark.decoding.framing import body_of
from outbox_spark.decoding.quarantine_reasons import Reason
from outbox_spark.decoding.schema_resolution import resolvable_schema
from outbox_spark.session.expressions import cached_expressions, prevent_inlining

Writers = tuple[tuple[int | str, str], ...]

# Field that is added at the end of every schema, and its bytes, appended to every body. The field has this value
# only if the body ends where its schema requires. Without it, a body that cannot be decoded would equal a record whose
# fields are all NULL, and surplus bytes would not be detected. The bytes are distinct, so that surplus bytes cannot
# produce the value.
_END_NAME = "outbox__end"
_END_BYTES = b"\xf0\x9e\x55\xc3\x0f\xaa\x81\x37"
_END_FIELD = {"name": _END_NAME, "type": {"type": "fixed", "name": "outbox.End", "size": len(_END_BYTES)}}


def with_records(latest: DataFrame, reader: str, writers: Mapping[int | str, str]) -> DataFrame:
    """Add `record` (a struct of the reader's fields), `problem` (a Reason, or NULL) and `deleted` to `latest`.

    `writers` are the schemas by id and GUID that the registry knows.
    """
    known = tuple(writers.items())
    return latest.select("*", _decoded(reader, known)).select("*", *_outcome(known))


@cached_expressions
def _decoded(reader: str, writers: Writers) -> Expression:
    return prevent_inlining(_record(reader, dict(writers))).alias("record")


@cached_expressions
def _outcome(writers: Writers) -> list[Expression]:
    value, schema_id, guid = F.col("value"), F.col("schema_id"), F.col("schema_guid")
    ids = [key for key, _ in writers if isinstance(key, int)]
    guids = [key for key, _ in writers if isinstance(key, str)]
    known = F.coalesce(schema_id.isin(ids), F.lit(False)) | F.coalesce(guid.isin(guids), F.lit(False))
    problem = (
        F.when(value.isNull(), F.lit(None))
        .when(schema_id.isNull() & guid.isNull(), F.lit(Reason.NOT_WIRE_FORMAT))
        .when(~known, F.lit(Reason.UNKNOWN_SCHEMA_ID))
        .when(~F.equal_null(F.col(f"record.{_END_NAME}"), F.lit(_END_BYTES)), F.lit(Reason.UNDECODABLE))
    )
    return [problem.alias("problem"), value.isNull().alias("deleted")]


def _record(reader: str, writers: Mapping[int | str, str]) -> Expression:
    """Return the decoded record: one from_avro per schema, in one pass; NULL if there is nothing to decode."""
    reader_with_end = _with_end(reader)
    body = F.concat(body_of(F.col("value"), F.col("id_header"), F.col("schema_guid")), F.lit(_END_BYTES))
    # NULL of the reader's type, for a range without a known schema (tombstones only).
    empty = from_avro(F.lit(None).cast("binary"), reader_with_end, {"mode": "PERMISSIVE"})
    result: Expression | None = None
    for key, writer in writers.items():
        if kind_of(load(writer).root) != "record":
            continue
        # The argument is the writer's schema, avroSchema is the reader's. PERMISSIVE yields NULL fields instead of
        # failing the run for a body that cannot be decoded.
        writer_with_end = _with_end(resolvable_schema(writer, reader))
        record = from_avro(body, writer_with_end, {"avroSchema": reader_with_end, "mode": "PERMISSIVE"})
        matches = F.col("schema_id" if isinstance(key, int) else "schema_guid") == key
        result = F.when(matches, record) if result is None else result.when(matches, record)
    return empty if result is None else result


def _with_end(schema: str) -> str:
    record_schema: dict[str, Any] = json.loads(schema)
    return json.dumps({**record_schema, "fields": [*record_schema["fields"], _END_FIELD]})


def default_of(schema: Schema, field: Mapping[str, Any]) -> Expression:
    """Return the default of a field of `schema`, as decoded from a record that was written without the field."""
    record_schema = {"type": "record", "name": "outbox.Default", "fields": [field]}
    empty = {**record_schema, "fields": []}
    return from_avro(F.lit(b""), json.dumps(empty), {"avroSchema": schema.text(record_schema)})[field["name"]]


def invalid_utf8(value: Expression, kind: DataType) -> Expression | None:
    """Return the condition that a string in the value is not UTF-8, which Avro does not check; None without strings."""
    if isinstance(kind, StringType):
        return ~F.is_valid_utf8(value)
    if isinstance(kind, ArrayType):
        return _any_item(value, kind.elementType)
    if isinstance(kind, MapType):
        return _any([_any_item(F.map_keys(value), kind.keyType), _any_item(F.map_values(value), kind.valueType)])
    if isinstance(kind, StructType):
        return _any([invalid_utf8(value[field.name], field.dataType) for field in kind.fields])
    return None


def _any_item(items: Expression, kind: DataType) -> Expression | None:
    if isinstance(kind, StringType):
        # Joined and checked once, as `exists` resolves the method for every item; a line feed is never part of a
        # multi-byte character.
        return ~F.is_valid_utf8(F.array_join(items, "\n"))
    # `exists` requires a condition, which items without strings do not have.
    if invalid_utf8(F.lit(None), kind) is None:
        return None

    def invalid(item: Expression) -> Expression:
        condition = invalid_utf8(item, kind)
        return F.lit(False) if condition is None else F.coalesce(condition, F.lit(False))

    return F.exists(items, invalid)


def _any(conditions: Sequence[Expression | None]) -> Expression | None:
    """Return the disjunction; NULL counts as false."""
    known = [F.coalesce(condition, F.lit(False)) for condition in conditions if condition is not None]
    return reduce(or_, known) if known else None
