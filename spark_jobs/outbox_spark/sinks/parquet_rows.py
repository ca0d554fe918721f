"""From one snapshot and a batch to the rows of the next. Frames in, frames out: nothing is read or written here."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BooleanType, DecimalType, StructField, StructType, TimestampType

from outbox_spark.columns import DELETED_AT_COLUMN, KEY_COLUMN, METADATA_COLUMNS, STALE_COLUMN
from outbox_spark.model import Mode
from outbox_spark.order import VERSION_COLUMNS
from outbox_spark.sinks.base import Batch

HAD_ROW = "_had_row"
BURIED = "_buried"
_NEW = "_new_"
_DEFAULT = "_default_"
_OURS = {KEY_COLUMN, *METADATA_COLUMNS, STALE_COLUMN, DELETED_AT_COLUMN}
# The promotions of Avro's schema resolution, but for those to float, which round.
_WIDER = {("int", "bigint"), ("int", "double"), ("bigint", "double"), ("float", "double")}


def version() -> Expression:
    """What decides which of two rows of a key is newer."""
    return F.struct(*VERSION_COLUMNS)


def widens(found: StructField, wanted: StructField) -> bool:
    """Whether a column may get another type: one that the newest schema shows every older value in too."""
    old, new = found.dataType, wanted.dataType
    if isinstance(old, DecimalType) and isinstance(new, DecimalType):
        return old.scale == new.scale and old.precision <= new.precision
    return (old.simpleString(), new.simpleString()) in _WIDER


def schema_of(batch: Batch, live: StructType | None, mode: Mode) -> StructType:
    """Schema of the table with this batch: key, fields (those that are there keep their place, also those that the
    newest schema no longer has), metadata, `_stale`, in tables with soft deletes `_deleted_at`."""
    wanted = {column.name.lower(): batch.rows.schema[column.name] for column in batch.columns}
    fields = [] if live is None else [field for field in live.fields if field.name not in _OURS]
    there = {field.name.lower() for field in fields}
    fields = [
        StructField(f.name, wanted[f.name.lower()].dataType) if f.name.lower() in wanted else f for f in fields
    ] + [StructField(f.name, f.dataType) for name, f in wanted.items() if name not in there]
    ours = [StructField(name, batch.rows.schema[name].dataType) for name in (KEY_COLUMN, *METADATA_COLUMNS)]
    deleted_at = [StructField(DELETED_AT_COLUMN, TimestampType())] if mode is Mode.SOFT_DELETE else []
    return StructType([ours[0], *fields, *ours[1:], StructField(STALE_COLUMN, BooleanType()), *deleted_at])


def conform(current: DataFrame, schema: StructType, defaults: DataFrame | None) -> DataFrame:
    """Rows of the last snapshot with the columns of the next.

    `defaults` is one row: the defaults of fields that the last snapshot's schema did not have. Rows from before show
    them, as decoding their records again would.
    """
    live = {name.lower() for name in current.columns}
    filled = set() if defaults is None else {name.lower() for name in defaults.columns}
    if DELETED_AT_COLUMN in current.columns and DELETED_AT_COLUMN not in schema.names:
        # Soft deletes were given up: what they kept goes.
        current = current.where(F.col(DELETED_AT_COLUMN).isNull())
    if defaults is not None:
        renamed = defaults.select(*[F.col(f"`{name}`").alias(_DEFAULT + name) for name in defaults.columns])
        current = current.crossJoin(F.broadcast(renamed))

    def value(field: StructField) -> Expression:
        name = field.name.lower()
        found = F.col(f"`{field.name}`").cast(field.dataType) if name in live else F.lit(None).cast(field.dataType)
        return F.coalesce(found, F.col(f"`{_DEFAULT}{field.name}`")) if name in filled else found

    return current.select(*[value(field).alias(field.name) for field in schema.fields])


def changes_of(good: DataFrame, rows: DataFrame, ledger: DataFrame) -> DataFrame:
    """Of a batch's readable rows those that are newer than row and ledger entry of their key; `_had_row` says
    whether there is a row. Tombstones of keys without one are among them: they belong into the ledger. So are those
    that tell the ledger nothing new (`_buried`) where the key has an older row nevertheless: a repair brings them."""
    found = rows.select(KEY_COLUMN, version().alias("_row"))
    graves = ledger.select(KEY_COLUMN, version().alias("_grave"))
    had_row, buried = F.col("_row").isNotNull(), F.coalesce(F.col("_grave") >= version(), F.lit(False))
    newer = (~had_row | (version() > F.col("_row"))) & (~buried | (F.col("_deleted") & had_row))
    both = good.join(found, KEY_COLUMN, "left").join(graves, KEY_COLUMN, "left")
    return both.where(newer).select(*good.columns, had_row.alias(HAD_ROW), buried.alias(BURIED))


def projected(rows: DataFrame, schema: StructType) -> DataFrame:
    """Live rows of a batch with the table's columns; those that it does not have are NULL."""
    there = {name.lower() for name in rows.columns}
    return rows.where(~F.col("_deleted")).select(
        *[
            (F.col(f"`{f.name}`") if f.name.lower() in there else F.lit(None).cast(f.dataType)).alias(f.name)
            for f in schema.fields
        ]
    )


def next_rows(current: DataFrame, changes: DataFrame, schema: StructType) -> DataFrame:
    """All rows of the next snapshot; `current` conforms to `schema` already."""
    touched = changes.where(HAD_ROW)
    rows = current.join(touched.select(KEY_COLUMN), KEY_COLUMN, "left_anti").unionByName(projected(changes, schema))
    if DELETED_AT_COLUMN not in schema.names:
        return rows
    dead = touched.where("_deleted").select(KEY_COLUMN, *[F.col(name).alias(_NEW + name) for name in METADATA_COLUMNS])
    moved = {name: F.col(_NEW + name) for name in METADATA_COLUMNS}
    moved[DELETED_AT_COLUMN] = F.col(f"{_NEW}_timestamp")
    kept = current.join(dead, KEY_COLUMN).select(
        *[moved.get(name, F.col(f"`{name}`")).alias(name) for name in schema.names]
    )
    return rows.unionByName(kept)


def with_stale(rows: DataFrame, poison: DataFrame | None, schema: StructType) -> DataFrame:
    """`rows` with `_stale` as it now is. `poison` is per key the newest version in quarantine, `_poison`."""
    if poison is None:
        stale = rows.withColumn(STALE_COLUMN, F.lit(False))
    else:
        newer = F.coalesce(F.col("_poison") > version(), F.lit(False))
        stale = rows.join(poison, KEY_COLUMN, "left").withColumn(STALE_COLUMN, newer)
    return stale.select(*_quoted(schema.names))


def next_ledger(ledger: DataFrame, changes: DataFrame) -> DataFrame:
    """The ledger with the tombstones of a batch; of a key it holds the newest."""
    new = changes.where(F.col("_deleted") & ~F.col(BURIED)).select(*ledger.columns)
    return ledger.join(new.select(KEY_COLUMN), KEY_COLUMN, "left_anti").unionByName(new)


def _quoted(names: Sequence[str]) -> list[str]:
    return [f"`{name}`" for name in names]
