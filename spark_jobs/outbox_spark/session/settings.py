"""Define the settings of the Spark sessions in which runs read and write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from pyspark.sql import SparkSession

from outbox_spark.session.error_redaction import JVM_ENDED

DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"

_CHANGED_DEFAULTS: Mapping[str, str] = {
    # Spark formats timestamps in this time zone; sinks/postgres/staging.py appends its UTC offset, +00.
    "spark.sql.session.timeZone": "UTC",
    # Spark's default list without kafka, because Spark's DSv2 reader for Kafka reads headers in a tenth of the time.
    "spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text",
    # Adaptive execution may coalesce the partitions of persisted frames, because each use runs a task per partition.
    "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "true",
    # By default, each Column method records a Java stack trace for error messages. It would show only Py4J's calls.
    "spark.sql.dataFrameQueryContext.enabled": "false",
    # Persisted rows are read only once or twice, so compressing their columns would take longer than it saves.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    # Spark describes the plan of each execution for its UI. By default, it also describes each node on several lines.
    "spark.sql.ui.explainMode": "simple",
    # Number of tasks that read Delta's log at every commit. The default of 50 suits tables of many thousands of files.
    "spark.databricks.delta.snapshotPartitions": "1",
}
_DEFAULTS: Mapping[str, str] = {
    # Overflows and invalid casts raise an error instead of returning NULL.
    "spark.sql.ansi.enabled": "true",
    "spark.sql.storeAssignmentPolicy": "ANSI",
    # Parsing and resolution of statements and names.
    "spark.sql.caseSensitive": "false",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.ansi.enforceReservedKeywords": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.parser.quotedRegexColumnNames": "false",
    "spark.sql.defaultCatalog": "spark_catalog",
    "spark.sql.runSQLOnFiles": "true",
    # Conversion of values.
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.mapKeyDedupPolicy": "EXCEPTION",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.legacy.castComplexTypesToString.enabled": "false",
    "spark.sql.legacy.sizeOfNull": "false",
    "spark.sql.avro.datetimeRebaseModeInRead": "CORRECTED",
    **{
        f"spark.sql.parquet.{name}RebaseModeIn{direction}": "CORRECTED"
        for name in ("datetime", "int96")
        for direction in ("Read", "Write")
    },
    # Reading and writing of files and tables.
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.sources.partitionOverwriteMode": "static",
    "spark.databricks.delta.schema.autoMerge.enabled": "false",
    # The commit information of a Delta table contains the table's progress and the counts of the commit.
    "spark.databricks.delta.commitInfo.enabled": "true",
    "spark.databricks.delta.history.metricsEnabled": "true",
}
"""Defaults of Spark and Delta that the application may have changed."""

PINNED_SETTINGS: Mapping[str, str] = {**_CHANGED_DEFAULTS, **_DEFAULTS}
"""Settings on which results or throughput depend. They override the settings of the application and the caller."""

WITHOUT_ADAPTIVE_EXECUTION = {"spark.sql.adaptive.enabled": "false"}
"""Settings for plans that are executed repeatedly. An adaptive plan keeps the rows of its first execution."""

_COPIED_PREFIXES = ("spark.sql.catalog.", "spark.hadoop.", "spark.sql.adaptive.", "spark.outbox.")
_COPIED_NAMES = ("spark.sql.shuffle.partitions", "spark.sql.autoBroadcastJoinThreshold")


def is_copied(name: str) -> bool:
    """Return whether a run copies the caller's setting of this name (catalogs, file systems, parallelism, jobs).

    Names without the prefix `spark.` are settings of Hadoop, for example `fs.s3a.access.key`.
    """
    return not name.startswith("spark.") or name.startswith(_COPIED_PREFIXES) or name in _COPIED_NAMES


@contextmanager
def changed_settings(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Inside `with`, change session settings for statements that have no options. Then restore the previous values."""
    previous = {name: session.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        with suppress(*JVM_ENDED):  # the JVM may have ended, but the error of the `with` block must be reported
            for name, earlier in previous.items():
                if earlier is None:
                    session.conf.unset(name)
                else:
                    session.conf.set(name, earlier)
