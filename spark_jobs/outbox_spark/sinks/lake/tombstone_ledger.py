"""The ledger of a lake table: the deleted keys, and the version at which each was deleted.

A deletion is true whether or not the table's commit follows, so entries are written before that commit, and only
added. After a crash in between, the next run reads the same tombstones and adds nothing.
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
    """Entries of one table from its first commit to its removal, identified by `id`.

    Each first run generates a new id, so that entries of a first run that lost the race have no effect.
    """

    def __init__(self, storage: LakeStorage, mode: Mode) -> None:
        self._storage = storage
        self._mode = mode
        self.id = secrets.token_hex(8)

    def exists(self) -> bool:
        """Return whether the ledger table exists."""
        return self._storage.exists(TOMBSTONES_SUFFIX)

    def entries(self) -> DataFrame:
        """Return the entries of this table."""
        return self._storage.read(TOMBSTONES_SUFFIX).where(F.col(LEDGER_ID) == self.id)

    def add(self, batch: Batch) -> int:
        """Add the tombstones of a batch that are not in the ledger, and return their number."""
        if not batch.counts.tombstones:
            return 0
        dead = batch.rows.where(F.col("_reason").isNull() & F.col("_deleted")).select(KEY_COLUMN, *METADATA_COLUMNS)
        if self.exists():
            if self._mode is Mode.HISTORY:
                dead = history.without(dead, self.entries())
            else:
                dead = dead.alias("s").join(self.entries().alias("t"), F.expr(_SAME_OR_OLDER), "left_anti")
        return self._storage.append(TOMBSTONES_SUFFIX, dead.withColumn(LEDGER_ID, F.lit(self.id)))

    def copy_from(self, source: Ledger) -> None:
        """Append the entries of another table's ledger. They take effect once `id` is that ledger's."""
        if source.exists():
            self._storage.append(TOMBSTONES_SUFFIX, source.entries())

    def without_deleted(self, rows: DataFrame) -> DataFrame:
        """Return the rows that no entry supersedes, and all tombstones."""
        if not self.exists():
            return rows
        superseded = F.expr(f"NOT s._deleted AND {_SAME_OR_OLDER}")
        return rows.alias("s").join(self.entries().alias("t"), superseded, how="left_anti")

    def expire(self, before: datetime) -> int:
        """Remove older entries, and return their number. In history mode none: they end the intervals of versions."""
        if self._mode is Mode.HISTORY or not self.exists():
            return 0
        condition = f"_timestamp < timestamp'{before.astimezone(UTC).isoformat()}'"
        # The count is read from file statistics when nothing is due, while a DELETE always takes a commit's time.
        count = self._storage.read(TOMBSTONES_SUFFIX).where(condition).count()
        if count:
            self._storage.execute(f"DELETE FROM {self._storage.sql_name(TOMBSTONES_SUFFIX)} WHERE {condition}")  # noqa: S608
        return count
