"""Storage of Delta tables, which are addressed by path."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from outbox_spark.session.run_session import hadoop_configuration
from outbox_spark.session.settings import changed_settings
from outbox_spark.sinks.delta.commits import read_commits
from outbox_spark.sinks.lake.merge_sql import quoted
from outbox_spark.sinks.lake.storage import LakeStorage

TABLE_PROPERTIES = {
    # Without deletion vectors, a MERGE rewrites every file with a matched row, even if it does not change that row.
    "delta.enableDeletionVectors": "true",
    # The progress is in the log. By default, Delta removes log entries after 30 days.
    "delta.logRetentionDuration": "interval 365 days",
}
_VACUUM_SETTINGS = {"spark.sql.sources.parallelPartitionDiscovery.parallelism": "16"}
"""Maximum number of tasks with which VACUUM lists folders, instead of Spark's default of 10,000."""


class DeltaStorage(LakeStorage):
    """The table at `path`, and its companion tables at `path` + suffix."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        super().__init__(spark)
        self.path = path

    def sql_name(self, suffix: str = "") -> str:
        return f"delta.{quoted(self.path + suffix)}"

    def exists(self, suffix: str = "") -> bool:
        jvm: Any = self.spark._jvm
        return bool(jvm.io.delta.tables.DeltaTable.isDeltaTable(self.spark._jsparkSession, self.path + suffix))

    def read(self, suffix: str = "") -> DataFrame:
        return self.spark.read.format("delta").load(self.path + suffix)

    def append(self, suffix: str, rows: DataFrame) -> int:
        token = str(uuid.uuid4())
        options = {**TABLE_PROPERTIES, "userMetadata": token}
        rows.write.format("delta").mode("append").options(**options).save(self.path + suffix)
        newest = next(self.commits(suffix))
        # Without rows and txnVersion, Delta makes no commit; the newest commit is then an earlier one.
        return int(newest["operationMetrics"].get("numOutputRows", 0)) if newest.get("userMetadata") == token else 0

    def drop(self, suffix: str) -> None:
        jvm: Any = self.spark._jvm
        folder = jvm.org.apache.hadoop.fs.Path(self.path + suffix)
        folder.getFileSystem(hadoop_configuration(self.spark)).delete(folder, True)

    def compact(self, suffix: str) -> str:
        """Run OPTIMIZE and VACUUM; return a text with the numbers of files that OPTIMIZE removed and added.

        VACUUM retains removed files for `delta.deletedFileRetentionDuration` of the table (default: 7 days), for
        readers of older versions and for time travel.
        """
        name = self.sql_name(suffix)
        metrics = self.spark.sql(f"OPTIMIZE {name}").collect()[0]["metrics"]
        with changed_settings(self.spark, _VACUUM_SETTINGS):
            self.execute(f"VACUUM {name}")
        return f"{metrics['numFilesRemoved']} files into {metrics['numFilesAdded']}"

    def commits(self, suffix: str = "") -> Iterator[dict[str, Any]]:
        """Yield the `commitInfo` of the commits of a table, newest first."""
        return read_commits(self.spark, self.path + suffix)
