"""The ledger of a lake table: the deleted keys, and the version of each deletion.

A deletion is valid even if the table's commit fails. Entries are therefore written before that commit, and are only
added. After a crash in between, the next run reads the same tombstones and adds no entries.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from outbox_spark.decoding.columns import KEY_COLUMN, METADATA_COLUMNS
from outbox_spark.jobs.model import Mode
from outbox_spark.kafka.ordering import version_sql
from outbox_spark.sinks.lake import history
from outbox_spark.sinks.lake.storage import LakeStorage
from outbox_spark.sinks.target_table import TOMBSTONES_SUFFIX, Batch

LEDGER_ID = "ledger_id"
_SAME_OR_OLDER = f"s.{KEY_COLUMN} = t.{KEY_COLUMN} AND {version_sql('t')} >= {version_sql('s')}"


class Ledger:
    """Entries of one table from its creation to its removal, identified by `id`.

    Every run that creates the table generates an id, so that entries of a concurrent run that failed have no effect.
    """

    def __init__(self, storage: LakeStorage, mode: Mode) -> None:
        self._storage = storage
        self._mode = mode
        self.id = secrets.token_hex(8)

    def exists(self) -> bool:
        return self._storage.exists(TOMBSTONES_SUFFIX)

    def entries(self) -> DataFrame:
        return self._storage.read(TOMBSTONES_SUFFIX).where(F.col(LEDGER_ID) == self.id)

    def add(self, batch: Batch) -> int:
        """Add the tombstones of a batch that are not in the ledger, and return their number."""
        if not batch.counts.tombstones:
            return 0
        deletions = batch.rows.where(F.col("_reason").isNull() & F.col("_deleted")).select(
            KEY_COLUMN, *METADATA_COLUMNS
        )
        if self.exists():
            if self._mode is Mode.HISTORY:
                deletions = history.without_stored(deletions, self.entries())
            else:
                deletions = deletions.alias("s").join(self.entries().alias("t"), F.expr(_SAME_OR_OLDER), "left_anti")
        return self._storage.append(TOMBSTONES_SUFFIX, deletions.withColumn(LEDGER_ID, F.lit(self.id)))

    def copy_from(self, source: Ledger) -> None:
        """Append the entries of another table's ledger. They take effect when `id` is set to the id of that ledger."""
        if source.exists():
            self._storage.append(TOMBSTONES_SUFFIX, source.entries())

    def without_deleted(self, rows: DataFrame) -> DataFrame:
        """Return all tombstones, and the rows that no ledger entry supersedes."""
        if not self.exists():
            return rows
        superseded = F.expr(f"NOT s._deleted AND {_SAME_OR_OLDER}")
        return rows.alias("s").join(self.entries().alias("t"), superseded, how="left_anti")

    def expire(self, before: datetime) -> int:
        """Remove entries older than `before`; return their number. In history mode keep all, as they end intervals."""
        if self._mode is Mode.HISTORY or not self.exists():
            return 0
        condition = f"_timestamp < timestamp'{before.astimezone(UTC).isoformat()}'"
        # The count usually comes from file statistics; a DELETE without matching rows is slower.
        count = self._storage.read(TOMBSTONES_SUFFIX).where(condition).count()
        if count:
            self._storage.execute(f"DELETE FROM {self._storage.sql_name(TOMBSTONES_SUFFIX)} WHERE {condition}")  # noqa: S608
        return count
