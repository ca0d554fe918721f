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
from outbox_spark.kafka.ordering import version_sql
from outbox_spark.sinks.lake import history
from outbox_spark.sinks.lake.storage import LakeStorage
from outbox_spark.sinks.target_table import TOMBSTONES_SUFFIX, Batch

LEDGER_ID = "ledger_id"
_IS_SUPERSEDED = f"s.{KEY_COLUMN} = t.{KEY_COLUMN} AND {version_sql('t')} >= {version_sql('s')}"


class Ledger:
    """Tombstones of one table. Only entries with the ledger id `id` are used.

    Each run that creates the table generates an id, so that entries of a run that failed to create it have no effect.
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
        """Add the tombstones that the ledger lacks. Return their number. Only history mode adds older versions."""
        if not batch.counts.tombstones:
            return 0
        entries = batch.rows.where(F.col("__outbox_reason").isNull() & F.col("__outbox_deleted")).select(
            KEY_COLUMN, *METADATA_COLUMNS
        )
        if self.exists():
            if self._mode is Mode.HISTORY:
                entries = history.without_stored(entries, self.entries())
            else:
                entries = entries.alias("s").join(self.entries().alias("t"), F.expr(_IS_SUPERSEDED), "left_anti")
        return self._storage.append(TOMBSTONES_SUFFIX, entries.withColumn(LEDGER_ID, F.lit(self.id)))

    def copy_from(self, source: Ledger) -> None:
        """Append the entries of another table's ledger. They take effect when `id` is set to the id of that ledger."""
        if source.exists():
            self._storage.append(TOMBSTONES_SUFFIX, source.entries())

    def without_superseded(self, rows: DataFrame) -> DataFrame:
        """Return `rows` without the rows that a ledger entry supersedes. All tombstones are retained."""
        if not self.exists():
            return rows
        is_superseded = F.expr(f"NOT s.__outbox_deleted AND {_IS_SUPERSEDED}")
        return rows.alias("s").join(self.entries().alias("t"), is_superseded, how="left_anti")

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
