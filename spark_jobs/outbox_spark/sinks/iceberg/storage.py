"""Store Iceberg tables, which are addressed by catalog, namespace and name, and the progress in their snapshots."""

from __future__ import annotations

import json
import time
from typing import Any

from pyspark.sql import DataFrame, DataFrameWriterV2, SparkSession

from outbox_spark.decoding.columns import has_greater_precision
from outbox_spark.jobs.model import IcebergTarget
from outbox_spark.sinks.iceberg.catalog import configure_catalog, name_in_catalog
from outbox_spark.sinks.lake.merge_sql import quoted
from outbox_spark.sinks.lake.storage import LakeStorage
from outbox_spark.sinks.lake.table import PROGRESS_KEY

STORED_NAMES = {"_partition": "_kafka_partition"}
"""Maps columns to stored names. Iceberg has a metadata column `_partition`, and MERGE rejects a second one."""

_TABLE_PROPERTIES = {
    # Format version 3 records deleted rows in deletion vectors.
    "format-version": "3",
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.merge.mode": "merge-on-read",
    # For the rows of one batch, a shuffle before the write would take longer than it saves.
    "write.distribution-mode": "none",
    "write.merge.distribution-mode": "none",
    # Every commit writes a metadata file, so the oldest of these files are deleted.
    "write.metadata.delete-after-commit.enabled": "true",
}
_WIDENINGS = frozenset({("int", "bigint"), ("float", "double")})
_AGE_PROPERTY = "history.expire.max-snapshot-age-ms"
_DEFAULT_AGE_DAYS = 5  # the default of the property in Iceberg
_DAY_MILLIS = 86_400_000


class IcebergStorage(LakeStorage):
    """The table `table` of the target's namespace, and its companion tables `table` + suffix."""

    stored_names = STORED_NAMES

    def __init__(self, spark: SparkSession, target: IcebergTarget, table: str) -> None:
        super().__init__(spark)
        self.catalog = configure_catalog(spark, target)
        self._target, self._table = target, table

    def can_widen(self, actual: str, desired: str) -> bool:
        return (actual, desired) in _WIDENINGS or has_greater_precision(actual, desired)

    def sql_name(self, suffix: str = "") -> str:
        return name_in_catalog(self.catalog, self._target, self._table + suffix)

    def exists(self, suffix: str = "") -> bool:
        return self.spark.catalog.tableExists(self.sql_name(suffix))

    def versions(self, suffix: str) -> tuple[str, str]:
        snapshot = self.load(suffix).currentSnapshot()
        if snapshot is None:
            return "", ""
        parent = snapshot.parentId()
        return str(snapshot.snapshotId()), "" if parent is None else str(parent)

    def read(self, suffix: str = "") -> DataFrame:
        column_names = {stored: name for name, stored in STORED_NAMES.items()}
        return self.spark.table(self.sql_name(suffix)).withColumnsRenamed(column_names)

    def append(self, suffix: str, rows: DataFrame) -> int:
        if self.exists(suffix):
            rows.withColumnsRenamed(STORED_NAMES).writeTo(self.sql_name(suffix)).append()
            return self.added_row_count(suffix)
        return self.create(suffix, rows)

    def create(self, suffix: str, rows: DataFrame) -> int:
        """Create the table with these rows, and its namespace if necessary. Return the number of rows."""
        namespace = ".".join(quoted(name) for name in [self.catalog, *self._target.namespace.split(".")])
        self.execute(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
        self._writer(suffix, rows).create()
        return self.added_row_count(suffix)

    def replace(self, rows: DataFrame) -> None:
        """Replace the rows and columns of the table in one commit."""
        self._writer("", rows).createOrReplace()

    def drop(self, suffix: str) -> None:
        self.execute(f"DROP TABLE IF EXISTS {self.sql_name(suffix)} PURGE")

    def compact(self, suffix: str) -> str:
        """Rewrite small files and files with deleted rows, and expire snapshots. Return text with their numbers.

        Snapshots are retained for the table's `history.expire.max-snapshot-age-ms` (default: 5 days). The latest
        snapshot with progress is always retained.
        """
        # Iceberg's procedures require the name without quotes and catalog.
        name = f"{self._target.namespace}.{self._table}{suffix}"
        metrics = self.spark.sql(
            f"CALL `{self.catalog}`.system.rewrite_data_files("
            f"table => '{name}', options => map('min-input-files', '2'))"
        ).collect()[0]
        expired_count = _expire_snapshots(self.load(suffix), retain_progress=not suffix)
        rewritten, added = metrics["rewritten_data_files_count"], metrics["added_data_files_count"]
        return f"{rewritten} files into {added}, expired {expired_count} snapshots"

    def load(self, suffix: str = "") -> Any:  # noqa: ANN401 - org.apache.iceberg.Table
        """Load the table in its current state through Iceberg's Java API."""
        jvm: Any = self.spark._jvm
        return jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
            self.spark._jsparkSession, self.sql_name(suffix)
        )

    def added_row_count(self, suffix: str) -> int:
        """Return the number of rows that the current snapshot added."""
        return int(self.load(suffix).currentSnapshot().summary().get("added-records") or 0)

    def _writer(self, suffix: str, rows: DataFrame) -> DataFrameWriterV2:
        writer = rows.withColumnsRenamed(STORED_NAMES).writeTo(self.sql_name(suffix)).using("iceberg")
        for key, value in _TABLE_PROPERTIES.items():
            writer = writer.tableProperty(key, value)
        return writer


def _expire_snapshots(table: Any, *, retain_progress: bool) -> int:  # noqa: ANN401 - org.apache.iceberg.Table
    max_age_millis = int(table.properties().get(_AGE_PROPERTY) or _DEFAULT_AGE_DAYS * _DAY_MILLIS)
    expire_before_millis = int(time.time() * 1000) - max_age_millis
    if retain_progress and (latest := latest_with_progress(table)) is not None:
        expire_before_millis = min(expire_before_millis, latest.timestampMillis())
    count_before = sum(1 for _ in table.snapshots())
    table.expireSnapshots().expireOlderThan(expire_before_millis).retainLast(1).commit()
    table.refresh()
    return count_before - sum(1 for _ in table.snapshots())


def progress_in(snapshot: Any) -> dict[str, Any] | None:  # noqa: ANN401
    """Return the progress in the summary of a snapshot; None if the summary contains no progress."""
    progress_json = snapshot.summary().get(PROGRESS_KEY)
    return None if progress_json is None else json.loads(progress_json)


def latest_with_progress(table: Any) -> Any:  # noqa: ANN401
    """Return the latest snapshot with progress among the current snapshot and its ancestors, or None."""
    snapshot = table.currentSnapshot()
    while snapshot is not None and progress_in(snapshot) is None:
        parent_id = snapshot.parentId()
        snapshot = None if parent_id is None else table.snapshot(parent_id)
    return snapshot


def was_rolled_back(table: Any, latest: Any) -> bool:  # noqa: ANN401
    """Return whether the table was rolled back to `latest` from a later snapshot with progress.

    The table's history lists snapshots in the order in which they became current. A rollback appends the old snapshot.
    """
    history, latest_id, is_before_latest = table.history(), latest.snapshotId(), False
    for index in range(history.size() - 1, -1, -1):
        snapshot_id = history.get(index).snapshotId()
        if not is_before_latest:
            is_before_latest = snapshot_id == latest_id
            continue
        previous = table.snapshot(snapshot_id)
        if previous is None or previous.sequenceNumber() <= latest.sequenceNumber():
            return False
        if progress_in(previous) is not None:
            return True
    return False
