"""Starts the Spark session: settings for correctness and start-up time, and the location of the jars."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from outbox_spark.errors import ConfigurationError
from outbox_spark.session import version_check
from outbox_spark.session.class_path import has_class

JARS_VARIABLE = "OUTBOX_SPARK_JARS"
_DEFAULT_JARS = Path("build/runtime/spark/jars")
_DEFAULT_MASTER = "local[*]"
_DRIVER_MEMORY = "1g"
# The JVM runs batches only: with the parallel collector, throughput is a third higher than with G1. With half the heap
# for short-lived objects (the default is a third), garbage collection runs half as often.
_JAVA_OPTIONS = "-XX:+UseParallelGC -XX:NewRatio=1"

# Set when a session starts, and again on an existing session.
RUNTIME_SETTINGS: Mapping[str, str] = {
    # Timestamps are formatted in this zone, with its offset.
    "spark.sql.session.timeZone": "UTC",
    # Invalid values raise an error instead of becoming NULL. This is also Spark's default.
    "spark.sql.ansi.enabled": "true",
    # Without kafka in this list the Kafka source uses DSv2, where headers cost a tenth as much.
    "spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text",
    # Coalesces the partitions of small persisted batches: each partition is a task for every use.
    "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "true",
    # Persisted rows are read once or twice: choosing a compression of the columns takes longer than writing them.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    # Number of tasks that read Delta's log at every commit. The default of 50 suits tables of many thousands of files.
    "spark.databricks.delta.snapshotPartitions": "1",
}
_STATIC_SETTINGS: Mapping[str, str] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.ui.showConsoleProgress": "false",
    # Names of settings whose values event log and UI hide: Spark's default, and credentials of Iceberg catalogs.
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|credential|authorization",
    # Cache of compiled code. One Delta MERGE fills the default of 100 entries, and the next run would compile again:
    # with more entries the second and later tables of a session take a third less time.
    "spark.sql.codegen.cache.maxEntries": "1000",
    # Spark caches the consumers of a query, and the records of their last polls, for five minutes.
    # Every batch is a new query, and each would retain hundreds of MB.
    **{
        f"spark.kafka.consumer.{pool}.{name}": "1s"
        for pool in ("cache", "fetchedData.cache")
        for name in ("timeout", "evictorThreadRunInterval")
    },
}
# Only for Spark in this process; a cluster has different values.
_LOCAL_SETTINGS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # The reader's tables and Kafka's buffers are outside of the memory that Spark manages.
    "spark.memory.fraction": "0.4",
    # The number of partitions before adaptive execution merges small ones.
    "spark.sql.shuffle.partitions": "16",
}

# One class of each required jar.
_CLASSES = (
    "org.apache.spark.sql.kafka010.KafkaSourceProvider",
    "org.apache.spark.sql.avro.AvroDataToCatalyst",
    "org.postgresql.Driver",
    "io.delta.sql.DeltaSparkSessionExtension",
    "org.apache.iceberg.spark.SparkCatalog",
    "io.outboxkit.spark.CopyRows",
)


def start_session(name: str = "outbox-materialize") -> SparkSession:
    """Start Spark, or return the session of spark-submit's driver.

    Without spark-submit the master is SPARK_MASTER or local[*], and the jars are those in the folder OUTBOX_SPARK_JARS
    or build/runtime/spark/jars of the project. Raises ConfigurationError when jars are missing, a version is not in
    version_check.SUPPORTED, or the master is a cluster.
    """
    version_check.check_pyspark()
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    builder = SparkSession.builder.appName(name)
    settings = {**_STATIC_SETTINGS, **RUNTIME_SETTINGS}
    if not submitted:
        settings |= _in_process_settings()
        builder = builder.master(_in_process_master())
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() == "JAVA_GATEWAY_EXITED":
            raise version_check.not_started() from error
        raise
    _redirect_java_stdout(session)
    _check_jars(session)
    version_check.check_session(session, _CLASSES)
    for key, value in RUNTIME_SETTINGS.items():
        session.conf.set(key, value)
    return session


def _redirect_java_stdout(session: SparkSession) -> None:
    """Redirect Java's stdout to stderr: Delta's VACUUM, for example, prints to stdout, which is for the result."""
    jvm: Any = session.sparkContext._jvm
    jvm.java.lang.System.setOut(jvm.java.lang.System.err)


def _in_process_master() -> str:
    master = os.environ.get("SPARK_MASTER", _DEFAULT_MASTER)
    # The jars are on the class path of this process only, and the driver listens on the loopback address.
    if not master.startswith("local"):
        message = f"SPARK_MASTER is {master}: executors of a cluster would have no jars and could not reach the driver"
        raise ConfigurationError(message, "use spark-submit, see docs/materialization.md")
    return master


def _in_process_settings() -> dict[str, str]:
    """Return the settings that spark-submit would receive as options."""
    # Executors are in this process and need the same Python packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # glibc creates memory arenas per thread, which do not return freed memory, so their number is limited.
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    settings = {
        # The executor is in the same JVM and uses the same class path. Unlike with spark.jars, no file is copied.
        "spark.driver.extraClassPath": f"{_jars_folder()}/*",
        "spark.driver.memory": os.environ.get("OUTBOX_SPARK_MEMORY", _DRIVER_MEMORY),
        **_LOCAL_SETTINGS,
    }
    logging = Path(__file__).parents[1] / "log4j2.properties"
    options = [] if _sets_collector() else [_JAVA_OPTIONS]
    if logging.exists():  # not inside a zip
        options.append(f"-Dlog4j2.configurationFile={logging.as_uri()}")
    settings["spark.driver.extraJavaOptions"] = " ".join(options)
    return settings


def _sets_collector() -> bool:
    """Whether the environment chooses a garbage collector: Java does not start if two are set."""
    options = " ".join(
        os.environ.get(name, "") for name in ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
    )
    return re.search(r"-XX:\+Use\w*GC\b", options) is not None


def _jars_folder() -> Path:
    configured = os.environ.get(JARS_VARIABLE)
    project = Path(__file__).resolve().parents[3]
    candidates = [Path(configured)] if configured else [_DEFAULT_JARS, project / _DEFAULT_JARS]
    for folder in candidates:
        if any(folder.glob("*.jar")):
            return folder.resolve()
    message = f"no jars for Spark in {', '.join(map(str, candidates))}"
    raise ConfigurationError(message, f"run `make setup`, or set {JARS_VARIABLE} to the folder of the jars")


def _check_jars(session: SparkSession) -> None:
    """Raise ConfigurationError when a job was submitted without its jars."""
    for name in _CLASSES:
        if not has_class(session, name):
            message = f"class {name} is not on Spark's class path"
            raise ConfigurationError(message, "add the jars to spark-submit, see docs/materialization.md")
