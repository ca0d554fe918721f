"""Repair differences by writing batches, which are merged by version. Committed offsets do not change."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from outbox_spark.decoding.columns import KEY_COLUMN, METADATA_COLUMNS
from outbox_spark.jobs.model import WriteCounts
from outbox_spark.runs.compare_topic import Comparison
from outbox_spark.runs.row_differences import KIND, REPAIRED, ROW, DifferenceKind, compared_fields
from outbox_spark.session.persisted import count_rows
from outbox_spark.sinks import Batch, TargetTable
from outbox_spark.sinks.target_table import DIFFERENT_COLUMNS


def repair_table(
    table: TargetTable,
    comparison: Comparison,
    kinds: Collection[DifferenceKind] = REPAIRED,
    current_at: datetime | None = None,
) -> WriteCounts:
    """Write the newest records of missing and stale keys, rewrite different rows, and delete zombies.

    `current_at` is the `committed_at` to commit; it is ignored if there are unproven keys. Nothing is committed if
    there are neither rows to write nor a `committed_at` to commit.
    """
    is_selected = F.col(KIND).isin(*[kind.value for kind in kinds])
    is_different = F.col(KIND) == DifferenceKind.DIFFERENT.value
    written, committed = WriteCounts(), comparison.committed
    selected = comparison.newest.where(is_selected)
    newest = selected.where(~is_different & F.col("__outbox_reason").isNull()).drop(KIND, ROW, DIFFERENT_COLUMNS)
    different = _with_stored_versions(selected.where(is_different))
    deletions = _tombstones(comparison.absent.where(is_selected), newest, table.current_time())
    committed_at = None if comparison.counts[DifferenceKind.UNPROVEN] else current_at
    # Deletions are a separate batch: a synthetic tombstone may have the partition and offset of another key's record.
    for rows, rewrites, is_last in ((newest, False, False), (different, True, False), (deletions, False, True)):
        counts = count_rows(rows)
        if not counts.rows and not (is_last and committed_at is not None):
            continue
        progress = replace(committed, run=committed.run + 1)
        if is_last and committed_at is not None:
            # Deletions before this time may be missing, so quarantined records from before it are not applied later.
            since = committed_at if committed.unknown_schemas else committed.ledger_since
            progress = replace(progress, committed_at=committed_at, ledger_since=since)
        columns, reader_schema = comparison.columns, comparison.reader_schema
        batch = Batch(rows, counts, columns, reader_schema, committed, progress, may_repeat=True, rewrites=rewrites)
        written = written.plus(table.write(batch))
        committed = progress
    return written


def _with_stored_versions(rows: DataFrame) -> DataFrame:
    """Return `rows` with the metadata of the stored rows, so that a batch that rewrites rows changes only these rows.

    The timestamp, however, comes from the record, unless the stored row comes from another copy of the same event.
    """
    row = F.col(ROW)
    is_same_record = (F.col("_partition") == row["_partition"]) & (F.col("_offset") == row["_offset"])
    metadata = {name: row[name] for name in METADATA_COLUMNS}
    metadata["_timestamp"] = F.when(is_same_record, F.col("_timestamp")).otherwise(row["_timestamp"])
    return rows.withColumns(metadata).drop(KIND, ROW, DIFFERENT_COLUMNS)


def _tombstones(absent: DataFrame, rows: DataFrame, time: datetime) -> DataFrame:
    """Return tombstones for rows without a record in the topic, in the form of decode().

    A tombstone has the version of its row, with the next offset: (`_sequence`, `_partition_epoch`, `_offset` + 1).
    - It is newer than the row, so the row is deleted.
    - It is not newer than any unread record. With a sequence, a later event has a greater sequence. Without a sequence,
      offsets determine the order. The comparison found no record of the key after the row's offset, so the key's next
      record is at the end offset or later. The end offset is at least the row's offset + 2, because the record that
      superseded the row's record precedes the end offset.
    - Each tombstone has a different offset, unlike if all had the topic's end offset. PostgreSQL targets require this,
      because they detect incomplete staging by counting offsets.
    The timestamp is the current time (`time`), because the time of the deletion is unknown and the ledger must retain
    the entry for its whole TTL.
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


def count_unrepaired(table: TargetTable, comparison: Comparison, stack: ExitStack) -> dict[DifferenceKind, int]:
    """Return the number of keys of each kind that repair_table() did not change because the table had newer rows."""
    current = table.current_versions().select(KEY_COLUMN)
    newest, absent = (frame.select(KEY_COLUMN, KIND) for frame in (comparison.newest, comparison.absent))
    missing = newest.where(F.col(KIND) == DifferenceKind.MISSING.value).join(current, on=KEY_COLUMN, how="left_anti")
    zombies = newest.unionByName(absent).where(F.col(KIND) == DifferenceKind.ZOMBIE.value)
    return {
        DifferenceKind.MISSING: missing.count(),
        DifferenceKind.ZOMBIE: zombies.join(current, on=KEY_COLUMN, how="left_semi").count(),
        DifferenceKind.DIFFERENT: _count_still_different(table, comparison, stack),
    }


def _count_still_different(table: TargetTable, comparison: Comparison, stack: ExitStack) -> int:
    if not comparison.counts[DifferenceKind.DIFFERENT]:
        return 0
    rows = comparison.newest.where((F.col(KIND) == DifferenceKind.DIFFERENT.value) & F.col("__outbox_reason").isNull())
    fields = compared_fields(table, comparison.columns)
    return table.different_fields(stack, rows.drop(KIND, ROW, DIFFERENT_COLUMNS), fields).count()
