"""Repairs the differences of a comparison by batches that are merged by version. Committed offsets do not change."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from outbox_spark.decoding.columns import KEY_COLUMN
from outbox_spark.jobs.model import WriteCounts
from outbox_spark.runs.compare_topic import DIFFERENCES, Comparison, DifferenceKind
from outbox_spark.session.persisted import count_rows
from outbox_spark.sinks import Batch, TargetTable


def repair_table(
    table: TargetTable,
    comparison: Comparison,
    kinds: Collection[DifferenceKind] = DIFFERENCES,
    current_at: datetime | None = None,
) -> WriteCounts:
    """Write the newest records of missing and stale keys, and delete the zombies.

    `current_at` is the `committed_at` to commit; it is ignored if keys are unproven. If there are neither rows to write
    nor a `committed_at` to commit, nothing is committed.
    """
    is_selected = F.col("__outbox_kind").isin(*[kind.value for kind in kinds])
    written, committed = WriteCounts(), comparison.committed
    newest = comparison.newest.where(is_selected & F.col("__outbox_reason").isNull()).drop("__outbox_kind")
    absent, rows = comparison.absent.where(is_selected), comparison.newest.drop("__outbox_kind")
    deletions = _tombstones(absent, rows, table.current_time())
    sets_time = current_at is not None and not comparison.counts[DifferenceKind.UNPROVEN]
    # Two batches, because a synthetic tombstone may have the partition and offset of another key's record.
    for rows, is_last in ((newest, False), (deletions, True)):
        counts = count_rows(rows)
        if not counts.rows and not (is_last and sets_time):
            continue
        committed_at = current_at if is_last and sets_time else committed.committed_at
        progress = replace(committed, run=committed.run + 1, committed_at=committed_at)
        batch = Batch(rows, counts, comparison.columns, comparison.reader_schema, committed, progress, may_repeat=True)
        written = written.plus(table.write(batch))
        committed = progress
    return written


def _tombstones(absent: DataFrame, rows: DataFrame, time: datetime) -> DataFrame:
    """Return tombstones for rows without a record in the topic, in the form of decode().

    A tombstone has the version of its row, with the next offset: (`_sequence`, `_partition_epoch`, `_offset` + 1).
    - It is newer than the row, so the row is deleted.
    - It is not newer than any unread record. With a sequence, a later event has a greater one. Without a sequence,
      offsets decide: the comparison found no record of the key after the row's offset, so its next record is at the
      end offset or later. That end is at least the row's offset + 2, because the record that superseded the row's is
      before it.
    - The offsets of different keys differ, unlike the end offset of the topic: PostgreSQL detects incomplete staging
      by counting offsets.
    The timestamp is `time`, the current time: the time of the deletion is unknown, and the ledger must retain the entry
    for its whole TTL.
    """
    values: dict[str, Column] = {
        KEY_COLUMN: F.col(KEY_COLUMN),
        "_sequence": F.col("_sequence"),
        "_partition_epoch": F.col("_partition_epoch"),
        "_partition": F.col("_partition"),
        "_offset": F.col("_offset") + F.lit(1),
        "_timestamp": F.lit(time),
        "__outbox_deleted": F.lit(True),
    }
    return absent.select(
        *[values.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name) for field in rows.schema.fields]
    )


def count_unrepaired(table: TargetTable, comparison: Comparison) -> dict[DifferenceKind, int]:
    """Return the number of keys of each kind that repair_table() did not change, because the table was newer."""
    current = table.current_versions().select(KEY_COLUMN)
    newest, absent = (frame.select(KEY_COLUMN, "__outbox_kind") for frame in (comparison.newest, comparison.absent))
    missing = newest.where(F.col("__outbox_kind") == DifferenceKind.MISSING.value).join(
        current, on=KEY_COLUMN, how="left_anti"
    )
    zombies = newest.unionByName(absent).where(F.col("__outbox_kind") == DifferenceKind.ZOMBIE.value)
    return {
        DifferenceKind.MISSING: missing.count(),
        DifferenceKind.ZOMBIE: zombies.join(current, on=KEY_COLUMN, how="left_semi").count(),
    }
