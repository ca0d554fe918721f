"""History tables (SCD type 2) as data frames: the versions that a batch adds, and the intervals that it changes.

Versions of a key are sorted by the ordering rule. Each is valid from its own Kafka timestamp to that of the next
version or deletion; the last has no end. A batch recomputes the intervals of every key that it touches from all
versions and deletions of the key, so versions may arrive in any order.
"""

from __future__ import annotations

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from outbox_spark.decoding.columns import KEY_COLUMN, METADATA_COLUMNS, STALE_COLUMN, VALID_FROM_COLUMN, VALID_TO_COLUMN
from outbox_spark.kafka.ordering import VERSION_COLUMNS
from outbox_spark.sinks.lake.merge_sql import QUARANTINED

IDENTITY = "_identity"
ENDED = "_ended"
"""In rows of `timeline`: whether a deletion ends the interval now."""
NEW = "_new"


def identity() -> Expression:
    """Return the identity of a version: its sequence, which copies of a record share, or else its offset."""
    offset = F.concat_ws(":", "_partition_epoch", "_partition", "_offset")
    return F.when(F.col("_sequence") != "", F.col("_sequence")).otherwise(offset)


def without(rows: DataFrame, known: DataFrame) -> DataFrame:
    """Return the rows whose version is not in `known`."""
    ids = known.select(KEY_COLUMN, identity().alias(IDENTITY))
    return rows.withColumn(IDENTITY, identity()).join(ids, [KEY_COLUMN, IDENTITY], "left_anti").drop(IDENTITY)


def timeline(new: DataFrame, stored: DataFrame | None, deletions: DataFrame | None, touched: DataFrame) -> DataFrame:
    """Return the versions of the touched keys whose interval or flag is new or has changed.

    `new` has the versions to add, with all columns; `stored` is the table; `deletions` has KEY_COLUMN and
    METADATA_COLUMNS; `touched` has KEY_COLUMN and, for keys in quarantine, QUARANTINED. The result has the columns of
    `new`, `_valid_from`, `_valid_to`, `_stale`, NEW and ENDED; the fields of stored rows are NULL.
    """
    versions = new.withColumns({NEW: F.lit(True), "_dead": F.lit(False)})
    if stored is not None:
        before = {"_was_to": F.col(VALID_TO_COLUMN), "_was_stale": F.coalesce(STALE_COLUMN, F.lit(False))}
        old = stored.join(touched, KEY_COLUMN, "left_semi")
        old = old.select(KEY_COLUMN, *METADATA_COLUMNS, *[value.alias(name) for name, value in before.items()])
        old = old.withColumns({NEW: F.lit(False), "_dead": F.lit(False)})
        versions = versions.unionByName(old, allowMissingColumns=True)
    else:
        versions = versions.withColumns({"_was_to": F.lit(None).cast("timestamp"), "_was_stale": F.lit(False)})
    if deletions is not None:
        dead = deletions.join(touched, KEY_COLUMN, "left_semi").select(KEY_COLUMN, *METADATA_COLUMNS)
        dead = dead.withColumns({NEW: F.lit(False), "_dead": F.lit(True)})
        versions = versions.unionByName(dead, allowMissingColumns=True)
    order = Window.partitionBy(KEY_COLUMN).orderBy(*VERSION_COLUMNS)
    timed = versions.withColumns(
        {
            VALID_FROM_COLUMN: F.col("_timestamp"),
            VALID_TO_COLUMN: F.lead("_timestamp").over(order),
            "_by_deletion": F.coalesce(F.lead("_dead").over(order), F.lit(False)),
        }
    ).where(~F.col("_dead"))
    return _changed(timed.join(touched, KEY_COLUMN, "left"))


def _changed(timed: DataFrame) -> DataFrame:
    newer = F.coalesce(F.col(QUARANTINED) > F.struct(*VERSION_COLUMNS), F.lit(False))
    flagged = timed.withColumn(STALE_COLUMN, F.col(VALID_TO_COLUMN).isNull() & newer)
    new_end = F.col(NEW) | ~F.col(VALID_TO_COLUMN).eqNullSafe(F.col("_was_to"))
    changed = flagged.where(new_end | (F.col(STALE_COLUMN) != F.col("_was_stale")))
    changed = changed.withColumn(ENDED, F.col("_by_deletion") & new_end)
    return changed.drop("_was_to", "_was_stale", "_by_deletion", "_dead", QUARANTINED)
