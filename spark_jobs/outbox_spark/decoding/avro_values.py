"""From Avro bodies to records of the reader's schema, each by the schema that wrote it."""

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
from outbox_spark.session.expression_cache import reused
from outbox_spark.session.no_inline import once

Writers = tuple[tuple[int | str, str], ...]

# A field behind all others, in every writer's and in the reader's schema, and its bytes behind every body. It comes
# out right only of a body that ends where its schema says. Without it a body that cannot be decoded looks like a
# record whose fields are all NULL, and bytes that are left over are not noticed. No byte of it repeats, so that
# nothing else that is left over in front of it can be taken for it.
_END_NAME = "outbox__end"
_END_BYTES = b"\xf0\x9e\x55\xc3\x0f\xaa\x81\x37"
_END_FIELD = {"name": _END_NAME, "type": {"type": "fixed", "name": "outbox.End", "size": len(_END_BYTES)}}


def with_records(latest: DataFrame, reader: str, writers: Mapping[int | str, str]) -> DataFrame:
    """`latest` with `record` (a struct of the reader's fields), `problem` (a Reason, NULL: none) and `deleted`.

    `writers` has the schema of each id and of each GUID that the registry knows.
    """
    known = tuple(writers.items())
    return latest.select("*", _decoded(reader, known)).select("*", *_judged(known))


@reused
def _decoded(reader: str, writers: Writers) -> Expression:
    return once(_record(reader, dict(writers))).alias("record")


@reused
def _judged(writers: Writers) -> list[Expression]:
    value, schema_id, guid = F.col("value"), F.col("schema_id"), F.col("schema_guid")
    ids, guids = (
        [key for key, _ in writers if isinstance(key, int)],
        [key for key, _ in writers if isinstance(key, str)],
    )
    known = F.coalesce(schema_id.isin(ids), F.lit(False)) | F.coalesce(guid.isin(guids), F.lit(False))
    problem = (
        F.when(value.isNull(), F.lit(None))
        .when(schema_id.isNull() & guid.isNull(), F.lit(Reason.NOT_WIRE_FORMAT))
        .when(~known, F.lit(Reason.UNKNOWN_SCHEMA_ID))
        .when(~F.equal_null(F.col(f"record.{_END_NAME}"), F.lit(_END_BYTES)), F.lit(Reason.UNDECODABLE))
    )
    return [problem.alias("problem"), value.isNull().alias("deleted")]


def _record(reader: str, writers: Mapping[int | str, str]) -> Expression:
    """The decoded record: one from_avro per schema, in one pass; NULL where there is nothing to decode."""
    ended = _with_end(reader)
    body = F.concat(body_of(F.col("value"), F.col("id_header"), F.col("schema_guid")), F.lit(_END_BYTES))
    # A NULL of the reader's type, for a range in which no schema is known (tombstones only).
    nothing = from_avro(F.lit(None).cast("binary"), ended, {"mode": "PERMISSIVE"})
    result: Expression | None = None
    for key, writer in writers.items():
        if kind_of(load(writer).root) != "record":  # nothing that a table of records could show
            continue
        # The schema argument is the writer's, the option the reader's. PERMISSIVE yields NULL fields for
        # what cannot be decoded instead of failing the run.
        written = _with_end(resolvable_schema(writer, reader))
        record = from_avro(body, written, {"avroSchema": ended, "mode": "PERMISSIVE"})
        matches = F.col("schema_id" if isinstance(key, int) else "schema_guid") == key
        result = F.when(matches, record) if result is None else result.when(matches, record)
    return nothing if result is None else result


def _with_end(schema: str) -> str:
    found: dict[str, Any] = json.loads(schema)
    return json.dumps({**found, "fields": [*found["fields"], _END_FIELD]})


def default_of(schema: Schema, field: Mapping[str, Any]) -> Expression:
    """The default of a field of `schema`, as a record that was written without the field shows it."""
    wanted = {"type": "record", "name": "outbox.Default", "fields": [field]}
    empty = {**wanted, "fields": []}
    return from_avro(F.lit(b""), json.dumps(empty), {"avroSchema": schema.text(wanted)})[field["name"]]


def broken_text(value: Expression, kind: DataType) -> Expression | None:
    """True where a text anywhere in a decoded value is no UTF-8, which Avro does not check; None: there is no text."""
    if isinstance(kind, StringType):
        return ~F.is_valid_utf8(value)
    if isinstance(kind, ArrayType):
        return _any_item(value, kind.elementType)
    if isinstance(kind, MapType):
        return _either([_any_item(F.map_keys(value), kind.keyType), _any_item(F.map_values(value), kind.valueType)])
    if isinstance(kind, StructType):
        return _either([broken_text(value[field.name], field.dataType) for field in kind.fields])
    return None


def _any_item(items: Expression, kind: DataType) -> Expression | None:
    if isinstance(kind, StringType):
        # All at once, apart by a character that belongs to no other: `exists` looks the method up for every item.
        return ~F.is_valid_utf8(F.array_join(items, "\n"))
    # Asked about a sample first: inside of `exists` it is too late to say that there is no text.
    if broken_text(F.lit(None), kind) is None:
        return None

    def broken(item: Expression) -> Expression:
        found = broken_text(item, kind)
        return F.lit(False) if found is None else F.coalesce(found, F.lit(False))

    return F.exists(items, broken)


def _either(conditions: Sequence[Expression | None]) -> Expression | None:
    """True where one of them is; NULL counts as false."""
    known = [F.coalesce(condition, F.lit(False)) for condition in conditions if condition is not None]
    return reduce(or_, known) if known else None
