"""The Spark session: the settings that correctness and start-up time depend on, and where the jars are."""

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
# Of a JVM that does nothing but batches: by throughput, the parallel collector reads a topic a third faster than G1.
# Half of the heap is for what lives as long as a row: with the default, a third, it is collected twice as often.
_JAVA_OPTIONS = "-XX:+UseParallelGC -XX:NewRatio=1"

# Take effect when a session starts, and are set again on one that is already there.
RUNTIME_SETTINGS: Mapping[str, str] = {
    # Timestamps become text in this zone, with the offset written beside it.
    "spark.sql.session.timeZone": "UTC",
    # Wrong values raise instead of turning into NULL. The default, made sure of.
    "spark.sql.ansi.enabled": "true",
    # Without kafka in this list the Kafka source is read through DSv2, where headers cost a tenth as much.
    "spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text",
    # A small batch that is kept is kept in few partitions: every task on it costs the same again.
    "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "true",
    # What is kept is read once or twice: finding out how its columns compress takes longer than writing them.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    # Every commit puts the log together by so many tasks: the default of 50 is for tables of many thousands of files.
    "spark.databricks.delta.snapshotPartitions": "1",
}
_STATIC_SETTINGS: Mapping[str, str] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.ui.showConsoleProgress": "false",
    # What event log and UI hide: Spark's own default, and what Iceberg catalogs ask for.
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|credential|authorization",
    # Compiled code, by its text. One Delta MERGE fills the default of 100, and everything is compiled again
    # in the next run: with room for all, the second and later tables of a session take a third less time.
    "spark.sql.codegen.cache.maxEntries": "1000",
    # Spark keeps the consumers of a query, and the records of their last polls, for five minutes in case the same
    # query goes on. A batch never does: each would hold its hundreds of MB until long after the next ones.
    **{
        f"spark.kafka.consumer.{pool}.{name}": "1s"
        for pool in ("cache", "fetchedData.cache")
        for name in ("timeout", "evictorThreadRunInterval")
    },
}
# Only for a Spark inside this process: a cluster has its own values for these.
_LOCAL_SETTINGS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # The reader's tables and Kafka's buffers are beside what Spark counts.
    "spark.memory.fraction": "0.4",
    # Adaptive execution joins small partitions; this bounds the number of tasks that it starts from.
    "spark.sql.shuffle.partitions": "16",
}

# One of each jar that the jobs need.
_CLASSES = (
    "org.apache.spark.sql.kafka010.KafkaSourceProvider",
    "org.apache.spark.sql.avro.AvroDataToCatalyst",
    "org.postgresql.Driver",
    "io.delta.sql.DeltaSparkSessionExtension",
    "org.apache.iceberg.spark.SparkCatalog",
    "io.outboxkit.spark.CopyRows",
)


def start_session(name: str = "outbox-materialize") -> SparkSession:
    """Start Spark, or take the session that spark-submit's driver already has.

    Without spark-submit the master is local[*] unless the environment says otherwise, and the jars are those
    in the folder that OUTBOX_SPARK_JARS names, or build/runtime/spark/jars of the project.
    Raises ConfigurationError when the jars are missing, a version is none of versions.SUPPORTED, or the master is a
    cluster.
    """
    version_check.check_pyspark()
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    builder = SparkSession.builder.appName(name)
    settings = {**_STATIC_SETTINGS, **RUNTIME_SETTINGS}
    if not submitted:
        settings |= _own_settings()
        builder = builder.master(_own_master())
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() == "JAVA_GATEWAY_EXITED":
            raise version_check.not_started() from error
        raise
    _keep_java_off_stdout(session)
    _check_jars(session)
    version_check.check_session(session, _CLASSES)
    for key, value in RUNTIME_SETTINGS.items():
        session.conf.set(key, value)
    return session


def _keep_java_off_stdout(session: SparkSession) -> None:
    """stdout is for the result: Delta's VACUUM, for one, prints what it has removed."""
    jvm: Any = session.sparkContext._jvm
    jvm.java.lang.System.setOut(jvm.java.lang.System.err)


def _own_master() -> str:
    master = os.environ.get("SPARK_MASTER", _DEFAULT_MASTER)
    # The jars are on this process's class path alone, and the driver listens on this machine alone.
    if not master.startswith("local"):
        message = f"SPARK_MASTER is {master}: a cluster's executors would have neither the jars nor a way back"
        raise ConfigurationError(message, "use spark-submit, see docs/materialization.md")
    return master


def _own_settings() -> dict[str, str]:
    """What spark-submit would have been given."""
    # Python on executors, which are this process: the packages that the driver has are there too.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # glibc gives every thread's allocations a region of its own, and each keeps what it once took.
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    settings = {
        # The class path of the driver, which is the executor too: nothing is copied, as spark.jars would.
        "spark.driver.extraClassPath": f"{_jars_folder()}/*",
        "spark.driver.memory": os.environ.get("OUTBOX_SPARK_MEMORY", _DRIVER_MEMORY),
        **_LOCAL_SETTINGS,
    }
    logging = Path(__file__).parents[1] / "log4j2.properties"
    options = [] if _has_collector() else [_JAVA_OPTIONS]
    if logging.exists():  # not inside a zip
        options.append(f"-Dlog4j2.configurationFile={logging.as_uri()}")
    settings["spark.driver.extraJavaOptions"] = " ".join(options)
    return settings


def _has_collector() -> bool:
    """Whether the environment chooses one: Java refuses to start with two."""
    given = " ".join(
        os.environ.get(name, "") for name in ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
    )
    return re.search(r"-XX:\+Use\w*GC\b", given) is not None


def _jars_folder() -> Path:
    named = os.environ.get(JARS_VARIABLE)
    project = Path(__file__).resolve().parents[3]
    candidates = [Path(named)] if named else [_DEFAULT_JARS, project / _DEFAULT_JARS]
    for folder in candidates:
        if any(folder.glob("*.jar")):
            return folder.resolve()
    looked = ", ".join(str(folder) for folder in candidates)
    message = f"no jars for Spark: looked in {looked}"
    raise ConfigurationError(message, f"run `make setup`, or set {JARS_VARIABLE} to a folder that has them")


def _check_jars(session: SparkSession) -> None:
    """Fail at once, and in words, when a job was submitted without its jars."""
    for name in _CLASSES:
        if not has_class(session, name):
            message = f"class {name} is not on Spark's class path"
            raise ConfigurationError(message, "give spark-submit the jars, see docs/materialization.md")
