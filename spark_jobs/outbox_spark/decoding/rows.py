"""From the newest records to rows: values to columns, and what cannot be read set apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from pyspark.errors import AnalysisException
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import DataType, StructType

from outbox_common.avro_schema import load
from outbox_spark.decoding import avro_values, json_values
from outbox_spark.decoding.columns import KEY_COLUMN, METADATA_COLUMNS, Column, Kind
from outbox_spark.decoding.quarantine_reasons import UNNAMED, Reason
from outbox_spark.errors import SchemaError
from outbox_spark.jobs.model import Format
from outbox_spark.session.expression_cache import reused

Limit = Callable[[Column, Expression], Expression | None]
"""Of a target: a condition that is true for the values of a column that it cannot hold; None: holds all."""


def decode(
    latest: DataFrame,
    columns: Sequence[Column],
    reader: str,
    writers: Mapping[int | str, str],
    limit: Limit,
    value_format: Format = Format.AVRO,
    carried: tuple[str, ...] = (),
) -> DataFrame:
    """Rows of the newest records (LATEST_COLUMNS).

    `reader` is the schema that `columns` were made of, `writers` the schema of each id and GUID that the registry
    knows (of JSON values nobody asks for them). Yields aggregate_id, the columns, METADATA_COLUMNS, OUTCOME_COLUMNS,
    and the `carried` columns of `latest` as they are. What goes to quarantine has an aggregate_id too, unless its key
    is what cannot be read.
    """
    if value_format is Format.AVRO:
        decoded = avro_values.with_records(latest, reader, writers)
    else:
        decoded = json_values.with_records(latest, reader, with_schema=value_format is Format.JSON_WITH_SCHEMA)
    reason = _reason(decoded.schema["record"].dataType, tuple(columns), limit)
    return decoded.select("*", reason).select("*", _shown()).select(*_row(tuple(columns), carried))


@reused
def _shown() -> Expression:
    # What goes to quarantine goes as bytes only: its text may be what a target cannot hold.
    return F.when(F.col("_reason").isNull(), F.col("record")).alias("shown")


@reused
def _row(columns: tuple[Column, ...], carried: tuple[str, ...]) -> list[Expression]:
    bad = F.col("_reason").isNotNull()
    named = ~bad | ~F.col("_reason").isin(*UNNAMED)
    return [
        F.when(named, F.col("key").cast("string")).alias(KEY_COLUMN),
        *[column.value(F.col(f"shown.`{column.name}`")).alias(column.name) for column in columns],
        *map(F.col, METADATA_COLUMNS),
        F.col("deleted").alias("_deleted"),
        F.col("_reason"),
        F.col("schema_id").alias("_schema_id"),
        F.when(bad, F.coalesce(F.col("raw_key"), F.col("key"))).alias("_key"),
        F.when(bad, F.col("value")).alias("_value"),
        *map(F.col, carried),
    ]


def defaults(spark: SparkSession, columns: Sequence[Column], reader: str) -> DataFrame:
    """One row: the default of each column, as decoding a record without these fields would show it."""
    schema = load(reader)
    fields = {field["name"]: field for field in schema.root["fields"]}
    return spark.range(1).select(
        *[column.value(avro_values.default_of(schema, fields[column.name])).alias(column.name) for column in columns]
    )


def types_of(spark: SparkSession, columns: Sequence[Column], reader: str) -> StructType:
    """Spark types of the columns. Reads nothing: the plan is analysed, not run.

    Raises SchemaError for what Spark has no type for.
    """
    return _types_of(spark, tuple(columns), reader)


@lru_cache(maxsize=256)
def _types_of(spark: SparkSession, columns: tuple[Column, ...], reader: str) -> StructType:
    record = from_avro(F.lit(None).cast("binary"), reader)
    decoded = spark.range(1).select(record.alias("record"))
    try:
        return decoded.select(
            *[column.value(F.col(f"record.`{column.name}`")).alias(column.name) for column in columns]
        ).schema
    except AnalysisException as error:
        words = str(error).split("\n", maxsplit=1)[0]
        raise SchemaError(f"the schema cannot become a table: {words}", "a record must not contain itself") from error


@reused
def _reason(record: DataType, columns: tuple[Column, ...], limit: Limit) -> Expression:
    """Why a record goes to quarantine, the key before the value; NULL: it does not."""
    key = F.col("key").cast("string")
    key_limit = limit(Column(KEY_COLUMN, Kind.TEXT, "string"), key)
    bad_key = F.lit(False) if key_limit is None else key_limit
    reason = (
        F.when(key.isNull() & F.col("raw_key").isNotNull(), F.lit(Reason.KEY_UNREADABLE))
        .when(key.isNull(), F.lit(Reason.NO_KEY))
        .when(~F.is_valid_utf8(key), F.lit(Reason.KEY_NOT_TEXT))
        .when(bad_key, F.lit(f"{Reason.INVALID}:{KEY_COLUMN}"))
        .when(F.col("problem").isNotNull(), F.col("problem"))
        .when(F.col("deleted"), F.lit(None))
    )
    for column in columns:
        raw = F.col(f"record.`{column.name}`")
        broken = avro_values.broken_text(raw, record[column.name].dataType) if isinstance(record, StructType) else None
        for invalid in (broken, column.invalid(raw), limit(column, column.value(raw))):
            if invalid is not None:
                reason = reason.when(invalid, F.lit(f"{Reason.INVALID}:{column.name}"))
    return reason.alias("_reason")
