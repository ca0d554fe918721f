"""From the newest records to rows: wire format, schema ids, Avro to columns, and what cannot be read set apart."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import StructType

from outbox_spark.columns import KEY_COLUMN, METADATA_COLUMNS, Column, Kind

# Added to the reader schema with a default: true after every decoding that worked, NULL after one that
# failed. Without it a value that cannot be decoded looks like a record whose fields are all NULL.
_MARKER = "outbox__decoded"
_HEADER_BYTES = 5


class Reason:
    """Why a record is in quarantine; part of the interface, so they do not change."""

    NO_KEY = "no-key"
    KEY_NOT_TEXT = "key-not-utf8"
    NOT_WIRE_FORMAT = "not-wire-format"
    UNKNOWN_SCHEMA_ID = "unknown-schema-id"
    UNDECODABLE = "undecodable"
    INVALID = "invalid"
    """Followed by `:<column>`: decoded, but not a value of the column's type."""


Limit = Callable[[Column, Expression], Expression | None]
"""Of a target: a condition that is true for the values of a column that it cannot hold; None: holds all."""


def decode(
    latest: DataFrame, columns: Sequence[Column], reader: str, writers: Mapping[int, str], limit: Limit
) -> DataFrame:
    """Rows of the newest records (LATEST_COLUMNS).

    `reader` is the schema that `columns` were made of, `writers` the schema of each id that the registry
    knows. Yields aggregate_id, the columns, METADATA_COLUMNS, OUTCOME_COLUMNS. What goes to quarantine has an
    aggregate_id too, unless its key is what cannot be read.
    """
    decoded = latest.select("*", _record(reader, writers).alias("record"))
    judged = decoded.select("*", _reason(columns, writers, limit).alias("_reason"))
    bad = F.col("_reason").isNotNull()
    # What goes to quarantine goes as bytes only: its text may be what a target cannot hold.
    judged = judged.withColumn("record", F.when(~bad, F.col("record")))
    named = ~bad | ~(F.col("_reason").isin(Reason.NO_KEY, Reason.KEY_NOT_TEXT, f"{Reason.INVALID}:{KEY_COLUMN}"))
    return judged.select(
        F.when(named, F.col("key").cast("string")).alias(KEY_COLUMN),
        *[column.value(F.col(f"record.`{column.name}`")).alias(column.name) for column in columns],
        *METADATA_COLUMNS,
        F.col("value").isNull().alias("_deleted"),
        "_reason",
        F.col("schema_id").alias("_schema_id"),
        F.when(bad, F.col("key")).alias("_key"),
        F.when(bad, F.col("value")).alias("_value"),
    )


def defaults(spark: SparkSession, columns: Sequence[Column], reader: str) -> DataFrame:
    """One row: the default of each column, as decoding a record without these fields would show it."""
    schema = json.loads(reader)
    names = {column.name for column in columns}
    wanted = {**schema, "fields": [field for field in schema["fields"] if field["name"] in names]}
    empty = {**schema, "fields": []}
    record = from_avro(F.lit(b""), json.dumps(empty), {"avroSchema": json.dumps(wanted)})
    return (
        spark.range(1)
        .select(record.alias("record"))
        .select(*[column.value(F.col(f"record.`{column.name}`")).alias(column.name) for column in columns])
    )


def types_of(spark: SparkSession, columns: Sequence[Column], reader: str) -> StructType:
    """Spark types of the columns. Reads nothing: the plan is analysed, not run."""
    record = from_avro(F.lit(None).cast("binary"), reader)
    decoded = spark.range(1).select(record.alias("record"))
    return decoded.select(
        *[column.value(F.col(f"record.`{column.name}`")).alias(column.name) for column in columns]
    ).schema


def _record(reader: str, writers: Mapping[int, str]) -> Expression:
    """The decoded record: one from_avro per schema id, in one pass; NULL where there is nothing to decode."""
    marked = _with_marker(reader)
    body = F.substring("value", _HEADER_BYTES + 1, 2**31 - 1)
    result: Expression | None = None
    for schema_id, writer in sorted(writers.items()):
        # The schema argument is the writer's, the option the reader's. PERMISSIVE yields NULL fields for
        # what cannot be decoded instead of failing the run.
        record = from_avro(body, writer, {"avroSchema": marked, "mode": "PERMISSIVE"})
        matches = F.col("schema_id") == schema_id
        result = F.when(matches, record) if result is None else result.when(matches, record)
    return result if result is not None else _nothing(marked)


def _nothing(marked: str) -> Expression:
    """A NULL record of the reader's type, for a range in which no schema id is known (tombstones only)."""
    return from_avro(F.lit(None).cast("binary"), marked, {"mode": "PERMISSIVE"})


def _with_marker(reader: str) -> str:
    schema: dict[str, Any] = json.loads(reader)
    marker = {"name": _MARKER, "type": "boolean", "default": True}
    return json.dumps({**schema, "fields": [*schema["fields"], marker]})


def _reason(columns: Sequence[Column], writers: Mapping[int, str], limit: Limit) -> Expression:
    key, value, schema_id = F.col("key").cast("string"), F.col("value"), F.col("schema_id")
    key_limit = limit(Column(KEY_COLUMN, Kind.TEXT, "string"), key)
    bad_key = F.lit(False) if key_limit is None else key_limit
    reason = (
        F.when(key.isNull(), F.lit(Reason.NO_KEY))
        .when(~F.is_valid_utf8(key), F.lit(Reason.KEY_NOT_TEXT))
        .when(bad_key, F.lit(f"{Reason.INVALID}:{KEY_COLUMN}"))
        .when(value.isNull(), F.lit(None))
        .when(schema_id.isNull(), F.lit(Reason.NOT_WIRE_FORMAT))
        .when(~schema_id.isin(*writers), F.lit(Reason.UNKNOWN_SCHEMA_ID))
        .when(F.col(f"record.{_MARKER}").isNull(), F.lit(Reason.UNDECODABLE))
    )
    for column in columns:
        raw = F.col(f"record.`{column.name}`")
        for invalid in (column.invalid(raw), limit(column, column.value(raw))):
            if invalid is not None:
                reason = reason.when(invalid, F.lit(f"{Reason.INVALID}:{column.name}"))
    return reason
