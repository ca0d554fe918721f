"""Tables of all versions (SCD type 2), as data frames: which rows a batch adds, and which intervals it changes.

Versions of a key are ordered by the ordering rule. Each is valid from its own Kafka timestamp to that of the version
after it, which may be a deletion; the last has no end. The intervals of every key that a batch touches are computed
anew from all its versions and deletions, so a late older version fits in wherever it belongs.
"""

from __future__ import annotations

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from outbox_spark.decoding.columns import KEY_COLUMN, METADATA_COLUMNS, STALE_COLUMN, VALID_FROM_COLUMN, VALID_TO_COLUMN
from outbox_spark.kafka.ordering import VERSION_COLUMNS
from outbox_spark.sinks.lake.merge_sql import POISON

IDENTITY = "_identity"
ENDED = "_ended"
"""In what `timeline` yields: the row's interval has just been ended by a deletion."""
NEW = "_new"


def identity() -> Expression:
    """What makes two records the same version: a connector sends copies with the sequence of the first."""
    place = F.concat_ws(":", "_partition_epoch", "_partition", "_offset")
    return F.when(F.col("_sequence") != "", F.col("_sequence")).otherwise(place)


def without(rows: DataFrame, known: DataFrame) -> DataFrame:
    """Rows whose version is not among `known`."""
    ids = known.select(KEY_COLUMN, identity().alias(IDENTITY))
    return rows.withColumn(IDENTITY, identity()).join(ids, [KEY_COLUMN, IDENTITY], "left_anti").drop(IDENTITY)


def timeline(new: DataFrame, stored: DataFrame | None, deletions: DataFrame | None, touched: DataFrame) -> DataFrame:
    """Versions of the touched keys with their intervals, those that are as stored left out.

    `new` are versions to add, with all their columns; `stored` is the table; `deletions` has KEY_COLUMN and
    METADATA_COLUMNS; `touched` has KEY_COLUMN and, where the key is in quarantine, POISON. Yields the columns of `new`,
    `_valid_from`, `_valid_to`, `_stale`, NEW and ENDED; of rows that are stored the fields are NULL.
    """
    versions = new.withColumns({NEW: F.lit(True), "_dead": F.lit(False)})
    if stored is not None:
        was = {"_was_to": F.col(VALID_TO_COLUMN), "_was_stale": F.coalesce(STALE_COLUMN, F.lit(False))}
        kept = stored.join(touched, KEY_COLUMN, "left_semi")
        kept = kept.select(KEY_COLUMN, *METADATA_COLUMNS, *[value.alias(name) for name, value in was.items()])
        kept = kept.withColumns({NEW: F.lit(False), "_dead": F.lit(False)})
        versions = versions.unionByName(kept, allowMissingColumns=True)
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
    newer = F.coalesce(F.col(POISON) > F.struct(*VERSION_COLUMNS), F.lit(False))
    flagged = timed.withColumn(STALE_COLUMN, F.col(VALID_TO_COLUMN).isNull() & newer)
    ends_anew = F.col(NEW) | ~F.col(VALID_TO_COLUMN).eqNullSafe(F.col("_was_to"))
    changed = ends_anew | (F.col(STALE_COLUMN) != F.col("_was_stale"))
    marked = flagged.where(changed).withColumn(ENDED, F.col("_by_deletion") & ends_anew)
    return marked.drop("_was_to", "_was_stale", "_by_deletion", "_dead", POISON)
