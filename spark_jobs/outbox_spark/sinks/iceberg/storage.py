"""Iceberg tables in a namespace of a catalog."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, DataFrameWriterV2, SparkSession

from outbox_spark.jobs.model import IcebergTarget
from outbox_spark.sinks.iceberg.catalog import table_name, use_catalog
from outbox_spark.sinks.lake.merge_sql import quoted
from outbox_spark.sinks.lake.storage import LakeStorage

STORED_NAMES = {"_partition": "_kafka_partition"}
"""Iceberg tables have a metadata column `_partition`, and MERGE does not support two columns of that name."""

_TABLE_PROPERTIES = {
    # Version 3 marks deleted rows in bitmaps next to the data files.
    "format-version": "3",
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.merge.mode": "merge-on-read",
    # A batch has few rows, so a shuffle before the write has no benefit.
    "write.distribution-mode": "none",
    "write.merge.distribution-mode": "none",
    # Every commit writes a metadata file.
    "write.metadata.delete-after-commit.enabled": "true",
}


class IcebergStorage(LakeStorage):
    """The tables `table` and `table` + suffix."""

    stored_names = STORED_NAMES

    def __init__(self, spark: SparkSession, target: IcebergTarget, table: str) -> None:
        super().__init__(spark)
        self.catalog = use_catalog(spark, target)
        self._target, self._table = target, table

    def sql_name(self, suffix: str = "") -> str:
        return table_name(self.spark, self._target, self._table + suffix)

    def name_in_catalog(self, suffix: str) -> str:
        """Return the unquoted name without the catalog, for Iceberg's procedures."""
        return f"{self._target.namespace}.{self._table}{suffix}"

    def exists(self, suffix: str = "") -> bool:
        return self.spark.catalog.tableExists(self.sql_name(suffix))

    def read(self, suffix: str = "") -> DataFrame:
        names = {stored: name for name, stored in STORED_NAMES.items()}
        return self.spark.table(self.sql_name(suffix)).withColumnsRenamed(names)

    def append(self, suffix: str, rows: DataFrame) -> int:
        if self.exists(suffix):
            rows.withColumnsRenamed(STORED_NAMES).writeTo(self.sql_name(suffix)).append()
            return self.added_records(suffix)
        return self.create(suffix, rows)

    def create(self, suffix: str, rows: DataFrame) -> int:
        """Create the table with these rows; return their number."""
        namespace = ".".join(quoted(name) for name in [self.catalog, *self._target.namespace.split(".")])
        self.execute(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
        self._writer(suffix, rows).create()
        return self.added_records(suffix)

    def replace(self, rows: DataFrame) -> None:
        """Replace rows and columns of the table in one commit."""
        self._writer("", rows).createOrReplace()

    def drop(self, suffix: str) -> None:
        self.execute(f"DROP TABLE IF EXISTS {self.sql_name(suffix)} PURGE")

    def load(self, suffix: str = "") -> Any:  # noqa: ANN401 - org.apache.iceberg.Table
        """Load the current state of the table in Iceberg's Java API."""
        jvm: Any = self.spark._jvm
        return jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
            self.spark._jsparkSession, self.sql_name(suffix)
        )

    def added_records(self, suffix: str) -> int:
        """Return the number of rows that the current snapshot added."""
        return int(self.load(suffix).currentSnapshot().summary().get("added-records") or 0)

    def _writer(self, suffix: str, rows: DataFrame) -> DataFrameWriterV2:
        writer = rows.withColumnsRenamed(STORED_NAMES).writeTo(self.sql_name(suffix)).using("iceberg")
        for key, value in _TABLE_PROPERTIES.items():
            writer = writer.tableProperty(key, value)
        return writer
