"""Store, in the ledger of a lake table, the deleted keys and the version of each deletion.

A deletion is valid even if the table's commit fails. Its entry is therefore written before that commit, and remains if
the commit fails. The next run then reads the same tombstones again, but does not add duplicate entries.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from outbox_spark.decoding.columns import KEY_COLUMN, METADATA_COLUMNS
from outbox_spark.jobs.model import Mode
from outbox_spark.kafka.ordering import VERSION_COLUMNS
from outbox_spark.session.persisted import DecodedCounts
from outbox_spark.sinks.lake import history
from outbox_spark.sinks.lake.storage import LakeStorage, with_keys
from outbox_spark.sinks.target_table import TOMBSTONES_SUFFIX, Batch

LEDGER_ID = "ledger_id"
LEDGER_CONTENT = "ledger"
"""Key, in the table's progress, of what the ledger contained at that commit (Ledger.content)."""
SUPERSEDED = "__outbox_superseded"
_NEWEST = "__outbox_newest_deletion"


class Ledger:
    """Tombstones of one table. Only entries with the ledger id `id` are used.

    Each run that creates the table generates an id, so that entries of a run that failed to create it have no effect.
    """

    def __init__(self, storage: LakeStorage, mode: Mode) -> None:
        self._storage = storage
        self._mode = mode
        self.id = secrets.token_hex(8)
        self.content: dict[str, str] | None = None
        """The version of the ledger's table, and the highest `_sequence` of its entries in that version; None if
        unknown."""

    def exists(self) -> bool:
        return self._storage.exists(TOMBSTONES_SUFFIX)

    def entries(self) -> DataFrame:
        return self._storage.read(TOMBSTONES_SUFFIX).where(F.col(LEDGER_ID) == self.id)

    def newest(self) -> str | None:
        """Return the highest `_sequence` of the entries, or "" if there are none.

        Return None if the ledger has changed since `content`: by a run that failed before its commit, or maintenance.
        """
        if not self.exists():
            return ""
        if self.content is None or self.content["version"] != self._storage.version(TOMBSTONES_SUFFIX):
            return None
        return self.content["newest"]

    def mark_superseded(self, rows: DataFrame, may_contain: str | None) -> DataFrame:
        """Return `rows` with the column SUPERSEDED: whether an entry has the same key and no older version.

        `may_contain` is a SQL function that is true for the keys of `rows` (see storage.key_filter).
        """
        if not self.exists():
            return rows.withColumn(SUPERSEDED, F.lit(False))
        version = F.struct(*VERSION_COLUMNS)
        entries = with_keys(self.entries(), may_contain)
        newest = entries.groupBy(KEY_COLUMN).agg(F.max(version).alias(_NEWEST))
        is_superseded = F.coalesce(F.col(_NEWEST) >= version, F.lit(False))
        return rows.join(newest, KEY_COLUMN, "left").withColumn(SUPERSEDED, is_superseded).drop(_NEWEST)

    def add(self, rows: DataFrame, counts: DecodedCounts, newest: str | None) -> int:
        """Add the tombstones among the source rows of a MERGE that are not superseded. Return their number.

        `counts` are those of the batch, and `newest` is the result of newest(). Afterwards, `content` includes the
        entries.
        """
        added = self._append(rows.where(F.col("__outbox_deleted") & ~F.col(SUPERSEDED))) if counts.tombstones else 0
        if self.exists():
            newest = self._newest_entry() if newest is None else max(newest, counts.newest_tombstone)
            self.content = {"version": self._storage.version(TOMBSTONES_SUFFIX), "newest": newest}
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

    def _newest_entry(self) -> str:
        row = self.entries().agg(F.max("_sequence")).collect()[0]
        return row[0] or ""

    def _append(self, entries: DataFrame) -> int:
        entries = entries.select(KEY_COLUMN, *METADATA_COLUMNS).withColumn(LEDGER_ID, F.lit(self.id))
        return self._storage.append(TOMBSTONES_SUFFIX, entries)
