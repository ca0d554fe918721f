"""Decode the newest record of each key into a table row. A record that cannot be decoded gets a quarantine reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import DataType, StructType

from outbox_events.schemas.avro_schema import load
from outbox_spark.decoding import avro_values, json_values
from outbox_spark.decoding.columns import KEY_COLUMN, METADATA_COLUMNS, Column, ColumnType
from outbox_spark.decoding.quarantine_reasons import REASONS_WITHOUT_ROW, Reason
from outbox_spark.jobs.model import RecordFormat
from outbox_spark.session.expressions import cached_expressions
from outbox_spark.session.run_session import active_session

UnsupportedCondition = Callable[[Column, Expression], Expression | None]
"""Condition under which a target cannot store a value of a column; None if the target can store every value."""


def decode(
    latest: DataFrame,
    columns: Sequence[Column],
    reader_schema: str,
    writer_schemas: Mapping[int | str, str],
    unsupported: UnsupportedCondition,
    value_format: RecordFormat = RecordFormat.AVRO,
    extra_columns: tuple[str, ...] = (),
) -> DataFrame:
    """Decode the newest records (LATEST_COLUMNS) into rows.

    `reader_schema` defines `columns`. `writer_schemas` maps ids and GUIDs to the schemas in the registry (unused for
    JSON values). The result has aggregate_id, the columns, METADATA_COLUMNS, OUTCOME_COLUMNS and the `extra_columns` of
    `latest`. A quarantined record also has an aggregate_id, unless its key cannot be read.
    """
    if value_format is RecordFormat.AVRO:
        decoded = avro_values.with_records(latest, reader_schema, writer_schemas)
    else:
        with_schema = value_format is RecordFormat.JSON_WITH_SCHEMA
        decoded = json_values.with_records(latest, reader_schema, with_schema=with_schema)
    reason = _reason(decoded.schema["record"].dataType, tuple(columns), unsupported)
    return decoded.select("*", reason).select("*", _readable_record()).select(*_row(tuple(columns), extra_columns))


@cached_expressions
def _readable_record() -> Expression:
    # NULL for records to quarantine. Their bytes are stored instead, because the target may not support the values.
    return F.when(F.col("__outbox_reason").isNull(), F.col("record")).alias("readable")


@cached_expressions
def _row(columns: tuple[Column, ...], extra_columns: tuple[str, ...]) -> list[Expression]:
    is_quarantined = F.col("__outbox_reason").isNotNull()
    has_key = ~is_quarantined | ~F.col("__outbox_reason").isin(*REASONS_WITHOUT_ROW)
    return [
        F.when(has_key, F.col("key").cast("string")).alias(KEY_COLUMN),
        *[column.value(F.col(f"readable.`{column.name}`")).alias(column.name) for column in columns],
        *[_metadata(name) for name in METADATA_COLUMNS],
        F.col("deleted").alias("__outbox_deleted"),
        F.col("__outbox_reason"),
        F.col("__outbox_schema_id"),
        F.when(is_quarantined, F.coalesce(F.col("raw_key"), F.col("key"))).alias("__outbox_key"),
        F.when(is_quarantined, F.col("value")).alias("__outbox_value"),
        F.when(is_quarantined, F.col("id_header")).alias("__outbox_schema_header"),
        *map(F.col, extra_columns),
    ]


def _metadata(name: str) -> Expression:
    """Return a metadata column. If it is NULL, which occurs only in records to quarantine, return a substitute."""
    substitutes = {"_sequence": F.lit(""), "_timestamp": F.timestamp_seconds(F.lit(0))}
    return F.coalesce(F.col(name), substitutes[name]).alias(name) if name in substitutes else F.col(name)


def defaults(spark: SparkSession, columns: Sequence[Column], reader_schema: str) -> DataFrame:
    """Return one row with the default of each column, as decoded from a record without fields."""
    schema = load(reader_schema)
    fields = {field["name"]: field for field in schema.root["fields"]}
    return spark.range(1).select(
        *[column.value(avro_values.default_of(schema, fields[column.name])).alias(column.name) for column in columns]
    )


@cached_expressions
def types_of(columns: tuple[Column, ...], reader_schema: str) -> StructType:
    """Return the Spark types of the columns. The plan is analyzed but not executed."""
    record = from_avro(F.lit(None).cast("binary"), reader_schema)
    decoded = active_session().range(1).select(record.alias("record"))
    return decoded.select(
        *[column.value(F.col(f"record.`{column.name}`")).alias(column.name) for column in columns]
    ).schema


@cached_expressions
def _reason(record: DataType, columns: tuple[Column, ...], unsupported: UnsupportedCondition) -> Expression:
    """Return why the record must be quarantined (the key's first problem, or else the value's); NULL if readable."""
    key = F.col("key").cast("string")
    unsupported_key = unsupported(Column(KEY_COLUMN, ColumnType.TEXT, "string"), key)
    is_invalid_key = F.lit(False) if unsupported_key is None else unsupported_key
    reason = (
        F.when(key.isNull() & F.col("raw_key").isNotNull(), F.lit(Reason.KEY_UNREADABLE))
        .when(key.isNull(), F.lit(Reason.NO_KEY))
        .when(~F.is_valid_utf8(key), F.lit(Reason.KEY_NOT_TEXT))
        .when(is_invalid_key, F.lit(Reason.INVALID_KEY))
        .when(F.col("_sequence").isNull(), F.lit(Reason.INVALID_SEQUENCE))
        .when(F.col("_timestamp").isNull(), F.lit(Reason.INVALID_TIMESTAMP))
        .when(F.col("problem").isNotNull(), F.col("problem"))
        .when(F.col("deleted"), F.lit(None))
    )
    for column in columns:
        raw = F.col(f"record.`{column.name}`")
        is_not_utf8 = (
            avro_values.invalid_utf8(raw, record[column.name].dataType) if isinstance(record, StructType) else None
        )
        for condition in (is_not_utf8, column.is_invalid(raw), unsupported(column, column.value(raw))):
            if condition is not None:
                reason = reason.when(condition, F.lit(f"{Reason.INVALID}:{column.name}"))
    return reason.alias("__outbox_reason")
