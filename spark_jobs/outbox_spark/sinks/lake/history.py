"""History tables (SCD type 2) as data frames: the versions that a batch adds, and the intervals that it changes.

Versions of a key are sorted by the ordering rule. Each version is valid from its Kafka timestamp to the timestamp of
the next version or deletion; the last version has no end. A batch recomputes the intervals of its keys from all
versions and deletions of these keys, so versions may arrive in any order.
"""

from __future__ import annotations

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from outbox_spark.decoding.columns import KEY_COLUMN, METADATA_COLUMNS, STALE_COLUMN, VALID_FROM_COLUMN, VALID_TO_COLUMN
from outbox_spark.kafka.ordering import VERSION_COLUMNS
from outbox_spark.sinks.lake.merge_sql import QUARANTINED

IDENTITY_COLUMN = "_identity"
ENDED_COLUMN = "_ended"
"""In the result of `timeline`: whether a deletion has newly ended the interval."""
NEW_COLUMN = "_new"


def identity() -> Expression:
    """Return the identity of a version: its sequence, which copies of a record share, or else its offset."""
    offset = F.concat_ws(":", "_partition_epoch", "_partition", "_offset")
    return F.when(F.col("_sequence") != "", F.col("_sequence")).otherwise(offset)


def without_stored(rows: DataFrame, stored: DataFrame) -> DataFrame:
    """Return the rows whose version is not in `stored`."""
    ids = stored.select(KEY_COLUMN, identity().alias(IDENTITY_COLUMN))
    identified = rows.withColumn(IDENTITY_COLUMN, identity())
    return identified.join(ids, [KEY_COLUMN, IDENTITY_COLUMN], "left_anti").drop(IDENTITY_COLUMN)


def timeline(new: DataFrame, stored: DataFrame | None, deletions: DataFrame | None, affected: DataFrame) -> DataFrame:
    """Return the versions of the affected keys whose interval or stale flag is new or has changed.

    `new` has the versions to add, with all columns; `stored` is the table; `deletions` has KEY_COLUMN and
    METADATA_COLUMNS; `affected` has KEY_COLUMN and, for keys in quarantine, QUARANTINED. The result has the columns of
    `new`, `_valid_from`, `_valid_to`, `_stale`, NEW_COLUMN and ENDED_COLUMN; the fields of stored rows are NULL.
    """
    versions = new.withColumns({NEW_COLUMN: F.lit(True), "_is_deletion": F.lit(False)})
    if stored is not None:
        stored_state = {
            "_stored_valid_to": F.col(VALID_TO_COLUMN),
            "_stored_stale": F.coalesce(STALE_COLUMN, F.lit(False)),
        }
        stored_versions = stored.join(affected, KEY_COLUMN, "left_semi")
        state = [value.alias(name) for name, value in stored_state.items()]
        stored_versions = stored_versions.select(KEY_COLUMN, *METADATA_COLUMNS, *state)
        stored_versions = stored_versions.withColumns({NEW_COLUMN: F.lit(False), "_is_deletion": F.lit(False)})
        versions = versions.unionByName(stored_versions, allowMissingColumns=True)
    else:
        versions = versions.withColumns(
            {"_stored_valid_to": F.lit(None).cast("timestamp"), "_stored_stale": F.lit(False)}
        )
    if deletions is not None:
        ends = deletions.join(affected, KEY_COLUMN, "left_semi").select(KEY_COLUMN, *METADATA_COLUMNS)
        ends = ends.withColumns({NEW_COLUMN: F.lit(False), "_is_deletion": F.lit(True)})
        versions = versions.unionByName(ends, allowMissingColumns=True)
    order = Window.partitionBy(KEY_COLUMN).orderBy(*VERSION_COLUMNS)
    timed = versions.withColumns(
        {
            VALID_FROM_COLUMN: F.col("_timestamp"),
            VALID_TO_COLUMN: F.lead("_timestamp").over(order),
            "_ended_by_deletion": F.coalesce(F.lead("_is_deletion").over(order), F.lit(False)),
        }
    ).where(~F.col("_is_deletion"))
    return _changed(timed.join(affected, KEY_COLUMN, "left"))


def _changed(timed: DataFrame) -> DataFrame:
    is_older = F.coalesce(F.col(QUARANTINED) > F.struct(*VERSION_COLUMNS), F.lit(False))
    flagged = timed.withColumn(STALE_COLUMN, F.col(VALID_TO_COLUMN).isNull() & is_older)
    new_end = F.col(NEW_COLUMN) | ~F.col(VALID_TO_COLUMN).eqNullSafe(F.col("_stored_valid_to"))
    changed = flagged.where(new_end | (F.col(STALE_COLUMN) != F.col("_stored_stale")))
    changed = changed.withColumn(ENDED_COLUMN, F.col("_ended_by_deletion") & new_end)
    return changed.drop("_stored_valid_to", "_stored_stale", "_ended_by_deletion", "_is_deletion", QUARANTINED)
