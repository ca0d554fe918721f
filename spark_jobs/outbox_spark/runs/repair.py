"""Writes what compare() found to be wrong, through the guarded write of every batch. Moves no offset."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from outbox_spark.decoding.columns import KEY_COLUMN
from outbox_spark.jobs.model import Committed, Written
from outbox_spark.runs.compare_topic import DIFFERENCES, Found, Kind
from outbox_spark.session.persisted import Counts, counted
from outbox_spark.sinks import Batch, TargetTable


def mend(
    table: TargetTable,
    found: Found,
    kinds: Collection[Kind] = DIFFERENCES,
    current_at: datetime | None = None,
) -> Written:
    """Write the newest records of keys that are missing or stale, delete the zombies.

    `current_at` is committed as the time from which on unread tombstones were written, unless something is left
    unproven; without it that time stays. Nothing to write and no such time: no commit.
    """
    wanted = F.col("_kind").isin(*[kind.value for kind in kinds])
    written, committed = Written(), found.committed
    newest = found.newest.where(wanted & F.col("_reason").isNull()).drop("_kind")
    absent = _tombstones(found.absent.where(wanted), found.newest.drop("_kind"))
    # Two batches: a synthetic tombstone may have the position of another key's record.
    proven = current_at is not None and not found.counts[Kind.UNPROVEN]
    for rows, last in ((newest, False), (absent, True)):
        counts = counted(rows)
        if not counts.rows and not (last and proven):
            continue
        progress = replace(
            committed,
            run=committed.run + 1,
            committed_at=current_at if last and proven else committed.committed_at,
        )
        written = written.plus(_write(table, found, rows, counts, committed, progress))
        committed = progress
    return written


def _write(
    table: TargetTable, found: Found, rows: DataFrame, counts: Counts, previous: Committed, committed: Committed
) -> Written:
    batch = Batch(
        rows=rows,
        counts=counts,
        columns=found.columns,
        reader=found.reader,
        previous=previous,
        committed=committed,
    )
    return table.write(batch)


def _tombstones(absent: DataFrame, like: DataFrame) -> DataFrame:
    """Deletions that the topic holds no record of any more, as decode() would have yielded them.

    The version is that of the row, one offset on: (its `_sequence`, its epoch, its offset + 1).
    - Strictly newer than the row, so the row goes.
    - Not newer than any record that is still to be read. With a sequence, a later event has a greater one. Without,
      the key's next record has a greater offset: compare() has found no record of the key between the row's offset
      and the end of the topic, and that end is at least the row's offset + 2, because the record that replaced the
      row's own was between the two. So whatever comes later wins over this tombstone.
    - Unlike the end of the topic as offset, which would do as well, it gives each key a position of its own, and the
      count of positions is how PostgreSQL knows that its staging is complete.
    The time is now: when the key was deleted is not known, and the ledger is to hold the entry for its whole time.
    """
    known: dict[str, Column] = {
        KEY_COLUMN: F.col(KEY_COLUMN),
        "_sequence": F.col("_sequence"),
        "_partition_epoch": F.col("_partition_epoch"),
        "_partition": F.col("_partition"),
        "_offset": F.col("_offset") + F.lit(1),
        "_timestamp": F.current_timestamp(),
        "_deleted": F.lit(True),
    }
    return absent.select(
        *[known.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name) for field in like.schema.fields]
    )


def not_mended(table: TargetTable, found: Found) -> dict[Kind, int]:
    """How many keys of each kind are still as found, after mend(): the guard knew something newer."""
    now = table.current_versions().select(KEY_COLUMN)
    newest, absent = (frame.select(KEY_COLUMN, "_kind") for frame in (found.newest, found.absent))
    missing = newest.where(F.col("_kind") == Kind.MISSING.value).join(now, on=KEY_COLUMN, how="left_anti")
    zombies = newest.unionByName(absent).where(F.col("_kind") == Kind.ZOMBIE.value)
    return {
        Kind.MISSING: missing.count(),
        Kind.ZOMBIE: zombies.join(now, on=KEY_COLUMN, how="left_semi").count(),
    }
