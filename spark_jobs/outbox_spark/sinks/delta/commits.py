"""The commits of a Delta table, and the progress in their user metadata."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from outbox_spark.session.run_session import hadoop_configuration
from outbox_spark.sinks.lake.table import PROGRESS_KEY

_OPERATIONS = frozenset({"WRITE", "MERGE"})
"""Operations by which the job commits, as Delta names them."""


def read_commits(spark: SparkSession, path: str) -> Iterator[dict[str, Any]]:
    """Yield the `commitInfo` of the commits in the log of the table at `path`, newest first.

    The log files are read directly, because DESCRIBE HISTORY is a Spark job, which takes a third of a second.
    """
    jvm: Any = spark._jvm
    delta_log: Any = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, path)
    no_option = jvm.scala.Option.apply(None)
    newest_version = delta_log.update(False, no_option, no_option).version()
    file_system = delta_log.logPath().getFileSystem(hadoop_configuration(spark))
    for version in range(newest_version, -1, -1):
        log_file = jvm.org.apache.hadoop.fs.Path(delta_log.logPath(), f"{version:020d}.json")
        try:
            stream = file_system.open(log_file)
        except Py4JJavaError as error:
            if "FileNotFound" in error.java_exception.getClass().getName():
                return
            raise
        yield _commit_info(jvm.java.io.BufferedReader(jvm.java.io.InputStreamReader(stream, "UTF-8")))


def progress_in(commit: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the progress in the user metadata of a commit that wrote rows; None if the commit has none.

    Other commits, such as OPTIMIZE of another thread in the same Spark session, may contain progress of a run that has
    not committed its rows.
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
    try:
        while (line := reader.readLine()) is not None:
            action = json.loads(line)
            if "commitInfo" in action:
                return {**defaults, **action["commitInfo"]}
    finally:
        reader.close()
    return defaults
