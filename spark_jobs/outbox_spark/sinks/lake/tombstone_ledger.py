"""Store, in the ledger of a lake table, the deleted keys and the version of each deletion.

A deletion is valid even if the table's commit fails. Its entry is therefore written before that commit, and remains if
the commit fails. The next run then reads the same tombstones again, but does not add duplicate entries.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from outbox_spark.decoding.columns import KEY_COLUMN, METADATA_COLUMNS
from outbox_spark.jobs.model import Mode
from outbox_spark.kafka.ordering import VERSION_COLUMNS
from outbox_spark.sinks.lake import history
from outbox_spark.sinks.lake.companion_content import Content, current_content
from outbox_spark.sinks.lake.storage import LakeStorage, with_keys
from outbox_spark.sinks.target_table import TOMBSTONES_SUFFIX, Batch

LEDGER_ID = "ledger_id"
LEDGER_CONTENT = "ledger_content"
"""Key, in the table's progress, of Ledger.content."""
SUPERSEDED = "__outbox_superseded"
_NEWEST = "__outbox_newest_deletion"


@dataclass(frozen=True)
class SequenceBounds:
    """The lowest `_sequence` of the readable rows of a batch, and the highest one of its tombstones."""

    oldest: str = ""
    newest_tombstone: str = ""


class Ledger:
    """Tombstones of one table. Only entries with the ledger id `id` are used.

    Each run that creates the table generates an id, so that entries of a run that failed to create it have no effect.
    """

    def __init__(self, storage: LakeStorage, mode: Mode) -> None:
        self._storage = storage
        self._mode = mode
        self.id = secrets.token_hex(8)
        self.content: Content | None = None
        """The content at the last commit of the table; None if unknown."""

    def exists(self) -> bool:
        return self._storage.exists(TOMBSTONES_SUFFIX)

    def entries(self) -> DataFrame:
        return self._storage.read(TOMBSTONES_SUFFIX).where(F.col(LEDGER_ID) == self.id)

    def restore(self, progress: Mapping[str, Any]) -> None:
        """Set the id and the content from the table's progress."""
        content = progress.get(LEDGER_CONTENT)
        self.id, self.content = progress[LEDGER_ID], None if content is None else Content(**content)

    def progress_fields(self) -> dict[str, Any]:
        """Return the members of the table's progress for `restore`."""
        return {LEDGER_ID: self.id, LEDGER_CONTENT: None if self.content is None else asdict(self.content)}

    def current_content(self) -> Content:
        return current_content(self._storage, TOMBSTONES_SUFFIX, self.content, self.entries)

    def mark_superseded(self, rows: DataFrame, may_contain: str | None) -> DataFrame:
        """Return `rows` with the column SUPERSEDED: whether an entry has the same key and no older version.

        `may_contain` is a SQL function that is true for the keys of `rows` (see storage.key_filter).
        """
        version = F.struct(*VERSION_COLUMNS)
        entries = with_keys(self.entries(), may_contain)
        newest = entries.groupBy(KEY_COLUMN).agg(F.max(version).alias(_NEWEST))
        is_superseded = F.coalesce(F.col(_NEWEST) >= version, F.lit(False))
        return rows.join(newest, KEY_COLUMN, "left").withColumn(SUPERSEDED, is_superseded).drop(_NEWEST)

    def add(self, rows: DataFrame, before: Content, bounds: SequenceBounds) -> int:
        """Add the tombstones among the source rows of a MERGE that are not superseded. Return their number.

        `before` is the content before the batch. Afterwards, `content` includes the tombstones; it is unknown if
        another run has added entries meanwhile.
        """
        added = self._append(rows.where(F.col("__outbox_deleted") & ~F.col(SUPERSEDED)))
        version, previous = self._storage.versions(TOMBSTONES_SUFFIX)
        if version == before.version:  # without rows, Delta does not commit
            self.content = before
        elif previous == before.version:
            self.content = Content(version, max(before.newest, bounds.newest_tombstone))
        else:
            self.content = None
        return added

    def add_versions(self, batch: Batch) -> int:
        """Add all tombstones of a history that the ledger lacks, in any order of versions. Return their number."""
        if not batch.counts.tombstones:
            return 0
        entries = batch.rows.where(F.col("__outbox_reason").isNull() & F.col("__outbox_deleted"))
        return self._append(history.without_stored(entries, self.entries()) if self.exists() else entries)

    def copy_from(self, source: Ledger) -> None:
        """Append the entries of another table's ledger. They take effect when `id` is set to the id of that ledger."""
        if source.exists():
            self._storage.append(TOMBSTONES_SUFFIX, source.entries())

    def expire(self, before: datetime) -> int:
        """Remove and count entries older than `before`, except in history mode, in which the entries end intervals."""
        if self._mode is Mode.HISTORY or not self.exists():
            return 0
        is_expired = f"_timestamp < timestamp'{before.astimezone(UTC).isoformat()}'"
        # The count usually comes from file statistics, which is faster than a DELETE without matching rows.
        count = self._storage.read(TOMBSTONES_SUFFIX).where(is_expired).count()
        if count:
            self._storage.execute(f"DELETE FROM {self._storage.sql_name(TOMBSTONES_SUFFIX)} WHERE {is_expired}")  # noqa: S608
        return count

    def _append(self, entries: DataFrame) -> int:
        entries = entries.select(KEY_COLUMN, *METADATA_COLUMNS).withColumn(LEDGER_ID, F.lit(self.id))
        return self._storage.append(TOMBSTONES_SUFFIX, entries)


def sequence_bounds(rows: DataFrame) -> SequenceBounds:
    """Return the bounds of the rows of a batch. `oldest` is empty if a row has no source_sequence."""
    readable = rows.where(F.col("__outbox_reason").isNull())
    tombstone = F.when(F.col("__outbox_deleted"), F.col("_sequence"))
    oldest, newest = readable.agg(F.min("_sequence"), F.max(tombstone)).collect()[0]
    return SequenceBounds(oldest or "", newest or "")
