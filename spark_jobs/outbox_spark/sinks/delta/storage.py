"""Store Delta tables, which are addressed by path, and find the progress in the user metadata of their commits."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession

from outbox_spark.errors import ForeignTableError
from outbox_spark.session.run_session import hadoop_configuration
from outbox_spark.session.settings import changed_settings
from outbox_spark.sinks.lake.merge_sql import quoted
from outbox_spark.sinks.lake.storage import LakeStorage
from outbox_spark.sinks.lake.table import PROGRESS_KEY

TABLE_PROPERTIES = {
    # Without deletion vectors, a MERGE rewrites every file with a matched row, even if it does not change that row.
    "delta.enableDeletionVectors": "true",
    # The log contains the progress. By default, Delta removes log entries after 30 days.
    "delta.logRetentionDuration": "interval 365 days",
}
_OPERATIONS = frozenset({"WRITE", "MERGE"})
"""Delta's names for the operations with which the job commits."""
_OWN_FILE = re.compile(r"_delta_log|\.?(part-\d+-[0-9a-f-]{36}[.-]c\d+\.\w+\.parquet|deletion_vector_.*\.bin)(\.crc)?")
"""Names of files and folders that a commit of Delta writes."""
_VACUUM_SETTINGS = {"spark.sql.sources.parallelPartitionDiscovery.parallelism": "16"}
"""Maximum number of tasks with which VACUUM lists folders. Spark's default is 10,000."""


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

    def refuse_foreign_files(self, suffix: str = "") -> None:
        """Raise ForeignTableError if the folder of a table that does not exist has files that no failed run has left.

        VACUUM would delete them.
        """
        jvm: Any = self.spark._jvm
        folder = jvm.org.apache.hadoop.fs.Path(self.path + suffix)
        file_system = folder.getFileSystem(hadoop_configuration(self.spark))
        entries = file_system.listStatus(folder) if file_system.exists(folder) else []
        names = sorted(entry.getPath().getName() for entry in entries)
        if others := [name for name in names if not _OWN_FILE.fullmatch(name)]:
            message = f"{self.path}{suffix} is not a Delta table, but contains {', '.join(others[:3])}"
            raise ForeignTableError(message, "check the path of the target, or move these files")

    def versions(self, suffix: str) -> tuple[str, str]:
        version = self._newest_version(self._log(suffix))
        return str(version), str(version - 1) if version else ""

    def read(self, suffix: str = "") -> DataFrame:
        return self.spark.read.format("delta").load(self.path + suffix)

    def append(self, suffix: str, rows: DataFrame) -> int:
        if not self.exists(suffix):
            self.refuse_foreign_files(suffix)
        token = str(uuid.uuid4())
        options = {**TABLE_PROPERTIES, "userMetadata": token}
        rows.write.format("delta").mode("append").options(**options).save(self.path + suffix)
        newest = next(self.commits(suffix))
        # If there are no rows and no txnVersion, Delta does not commit, and the newest commit is an earlier one.
        return int(newest["operationMetrics"].get("numOutputRows", 0)) if newest.get("userMetadata") == token else 0

    def drop(self, suffix: str) -> None:
        jvm: Any = self.spark._jvm
        folder = jvm.org.apache.hadoop.fs.Path(self.path + suffix)
        folder.getFileSystem(hadoop_configuration(self.spark)).delete(folder, True)

    def compact(self, suffix: str) -> str:
        """Run OPTIMIZE and VACUUM. Return text with the numbers of files that OPTIMIZE removed and added.

        VACUUM retains removed files for the table's `delta.deletedFileRetentionDuration` (default: 7 days), for readers
        of older versions and for time travel.
        """
        name = self.sql_name(suffix)
        metrics = self.spark.sql(f"OPTIMIZE {name}").collect()[0]["metrics"]
        with changed_settings(self.spark, _VACUUM_SETTINGS):
            self.execute(f"VACUUM {name}")
        return f"{metrics['numFilesRemoved']} files into {metrics['numFilesAdded']}"

    def commits(self, suffix: str = "") -> Iterator[dict[str, Any]]:
        """Yield the `commitInfo` of the commits in the log of a table, newest first.

        The log files are read directly, because DESCRIBE HISTORY runs a Spark job, which takes a third of a second.
        """
        jvm: Any = self.spark._jvm
        delta_log = self._log(suffix)
        newest_version = self._newest_version(delta_log)
        file_system = delta_log.logPath().getFileSystem(hadoop_configuration(self.spark))
        for version in range(newest_version, -1, -1):
            log_file = jvm.org.apache.hadoop.fs.Path(delta_log.logPath(), f"{version:020d}.json")
            try:
                stream = file_system.open(log_file)
            except Py4JJavaError as error:
                if "FileNotFound" in error.java_exception.getClass().getName():
                    return
                raise
            yield _commit_info(jvm.java.io.BufferedReader(jvm.java.io.InputStreamReader(stream, "UTF-8")))

    def _log(self, suffix: str) -> Any:  # noqa: ANN401 - org.apache.spark.sql.delta.DeltaLog
        jvm: Any = self.spark._jvm
        return jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self.spark._jsparkSession, self.path + suffix)

    def _newest_version(self, delta_log: Any) -> int:  # noqa: ANN401 - org.apache.spark.sql.delta.DeltaLog
        jvm: Any = self.spark._jvm
        no_option = jvm.scala.Option.apply(None)
        return int(delta_log.update(False, no_option, no_option).version())


def progress_in(commit: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the progress in the user metadata of a commit that wrote rows; None if the commit contains no progress.

    Other commits, such as an OPTIMIZE by another thread in the same Spark session, may contain the progress of a run
    that has not committed its rows.
    """
    if commit.get("operation") not in _OPERATIONS:
        return None
    try:
        metadata = json.loads(commit.get("userMetadata") or "")
    except ValueError:
        return None
    progress = metadata.get(PROGRESS_KEY) if isinstance(metadata, dict) else None
    return progress if isinstance(progress, dict) else None


def _commit_info(reader: Any) -> dict[str, Any]:  # noqa: ANN401 - java.io.BufferedReader
    """Return the `commitInfo` of one log file, with defaults for missing keys, and close the reader."""
    defaults: dict[str, Any] = {"operation": None, "operationMetrics": {}}
    with closing(reader):
        while (line := reader.readLine()) is not None:
            action = json.loads(line)
            if "commitInfo" in action:
                return {**defaults, **action["commitInfo"]}
    return defaults
