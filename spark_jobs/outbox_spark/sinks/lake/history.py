"""Compute, for history tables (SCD type 2), the versions that a batch adds and the intervals that it changes.

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

IDENTITY_COLUMN = "__outbox_identity"
ENDED_COLUMN = "__outbox_ended"
"""In the result of `timeline`: whether the interval ends with a deletion and did not end before."""
NEW_COLUMN = "__outbox_new"


def identity() -> Expression:
    """Return the identity of a version: the sequence, which copies of a record share, or else partition and offset."""
    record_location = F.concat_ws(":", "_partition_epoch", "_partition", "_offset")
    return F.when(F.col("_sequence") != "", F.col("_sequence")).otherwise(record_location)


def without_stored(rows: DataFrame, stored_rows: DataFrame) -> DataFrame:
    """Return the rows whose key and version are not in `stored_rows`."""
    stored_ids = stored_rows.select(KEY_COLUMN, identity().alias(IDENTITY_COLUMN))
    identified = rows.withColumn(IDENTITY_COLUMN, identity())
    return identified.join(stored_ids, [KEY_COLUMN, IDENTITY_COLUMN], "left_anti").drop(IDENTITY_COLUMN)


def timeline(
    new_versions: DataFrame, stored_rows: DataFrame | None, deletions: DataFrame | None, affected_keys: DataFrame
) -> DataFrame:
    """For the affected keys, return the versions whose interval or stale flag is new or has changed.

    `new_versions` has all columns. `stored_rows` is the table. `deletions` has KEY_COLUMN and METADATA_COLUMNS.
    `affected_keys` has KEY_COLUMN and QUARANTINED, which is set for keys in quarantine. The result has the columns of
    `new_versions` (NULL fields for stored rows), `_valid_from`, `_valid_to`, `_stale`, NEW_COLUMN and ENDED_COLUMN.
    """
    versions = new_versions.withColumns({NEW_COLUMN: F.lit(True), "__outbox_is_deletion": F.lit(False)})
    if stored_rows is not None:
        valid_to = F.col(VALID_TO_COLUMN).alias("__outbox_stored_valid_to")
        stale = F.coalesce(STALE_COLUMN, F.lit(False)).alias("__outbox_stored_stale")
        stored_versions = stored_rows.join(affected_keys, KEY_COLUMN, "left_semi")
        stored_versions = stored_versions.select(KEY_COLUMN, *METADATA_COLUMNS, valid_to, stale)
        stored_versions = stored_versions.withColumns({NEW_COLUMN: F.lit(False), "__outbox_is_deletion": F.lit(False)})
        versions = versions.unionByName(stored_versions, allowMissingColumns=True)
    else:
        versions = versions.withColumns(
            {"__outbox_stored_valid_to": F.lit(None).cast("timestamp"), "__outbox_stored_stale": F.lit(False)}
        )
    if deletions is not None:
        interval_ends = deletions.join(affected_keys, KEY_COLUMN, "left_semi").select(KEY_COLUMN, *METADATA_COLUMNS)
        interval_ends = interval_ends.withColumns({NEW_COLUMN: F.lit(False), "__outbox_is_deletion": F.lit(True)})
        versions = versions.unionByName(interval_ends, allowMissingColumns=True)
    version_order = Window.partitionBy(KEY_COLUMN).orderBy(*VERSION_COLUMNS)
    intervals = versions.withColumns(
        {
            VALID_FROM_COLUMN: F.col("_timestamp"),
            VALID_TO_COLUMN: F.lead("_timestamp").over(version_order),
            "__outbox_ended_by_deletion": F.coalesce(F.lead("__outbox_is_deletion").over(version_order), F.lit(False)),
        }
    ).where(~F.col("__outbox_is_deletion"))
    return _changed_intervals(intervals.join(affected_keys, KEY_COLUMN, "left"))


def _changed_intervals(intervals: DataFrame) -> DataFrame:
    has_newer_quarantined = F.coalesce(F.col(QUARANTINED) > F.struct(*VERSION_COLUMNS), F.lit(False))
    with_stale_flag = intervals.withColumn(STALE_COLUMN, F.col(VALID_TO_COLUMN).isNull() & has_newer_quarantined)
    has_new_end = F.col(NEW_COLUMN) | ~F.col(VALID_TO_COLUMN).eqNullSafe(F.col("__outbox_stored_valid_to"))
    changed = with_stale_flag.where(has_new_end | (F.col(STALE_COLUMN) != F.col("__outbox_stored_stale")))
    changed = changed.withColumn(ENDED_COLUMN, F.col("__outbox_ended_by_deletion") & has_new_end)
    return changed.drop(
        "__outbox_stored_valid_to",
        "__outbox_stored_stale",
        "__outbox_ended_by_deletion",
        "__outbox_is_deletion",
        QUARANTINED,
    )
