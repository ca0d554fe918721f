"""Start the Spark session with settings for correctness, throughput and memory, and find the folder of the jars."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from outbox_common.components.download import download
from outbox_common.components.folders import is_checkout, runtime_folder
from outbox_common.components.manifest import SPARK
from outbox_common.secret_patterns import NAME_PATTERN, VALUE_PATTERN
from outbox_events.errors import ConfigurationError
from outbox_spark.session import version_check
from outbox_spark.session.requirements import ALL_CLASSES, DELTA_EXTENSION, ICEBERG_EXTENSION, check_jars
from outbox_spark.session.settings import DELTA_CATALOG, PINNED_SETTINGS

JARS_VARIABLE = "OUTBOX_SPARK_JARS"
_PACKAGED_JAR = Path(__file__).resolve().parents[1] / "outbox-spark.jar"
"""The jar of this package, if it was installed from a wheel."""
_DEFAULT_MASTER = "local[*]"
_DRIVER_MEMORY = "1g"
# Pauses are harmless in a batch job, and throughput is a third higher with the parallel collector than with G1. If half
# of the heap is for short-lived objects (the default is a third), garbage collection runs half as often.
_GC_OPTIONS = "-XX:+UseParallelGC -XX:NewRatio=1"
# Java's optimizing compiler takes a third of the CPU time of a run that starts Spark for few records. Without it, the
# default size of the cache for compiled code would be too small.
_QUICK_COMPILER = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
FEW_RECORDS = 200_000
# Java ignores an archive of other jars or of another version of Java, and would print warnings to stdout.
SILENT_ARCHIVE = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off"

_STATIC_SETTINGS: Mapping[str, str] = {
    "spark.sql.extensions": f"{DELTA_EXTENSION},{ICEBERG_EXTENSION}",
    "spark.sql.catalog.spark_catalog": DELTA_CATALOG,
    "spark.ui.showConsoleProgress": "false",
    # By default, PySpark sends the call site of each method of Column to the JVM, for error messages.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # The event log and the UI hide settings whose name or value matches Spark's default patterns or outbox-kit's.
    "spark.redaction.regex": f"(?i)secret|password|token|access[.]?key|{NAME_PATTERN}|{VALUE_PATTERN}",
    # Size of the cache of compiled code. One Delta MERGE fills the default of 100 entries, so the code for the next
    # table would be compiled again. With more entries, each table after the first takes a third less time.
    "spark.sql.codegen.cache.maxEntries": "1000",
    # By default, Spark caches the Kafka consumers of a query and the records of their last polls for five minutes.
    # Every batch is a new query, so each batch would retain hundreds of MB.
    **{
        f"spark.kafka.consumer.{pool}.{name}": "1s"
        for pool in ("cache", "fetchedData.cache")
        for name in ("timeout", "evictorThreadRunInterval")
    },
}
# Settings that apply only without spark-submit, when this process starts Spark in local mode.
_LOCAL_SETTINGS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Leaves memory that Spark does not manage, for NewestTable (in outbox-spark.jar) and Kafka consumers' buffers.
    "spark.memory.fraction": "0.4",
    # Initial number of shuffle partitions; adaptive execution coalesces small partitions.
    "spark.sql.shuffle.partitions": "16",
}


def start_session(
    name: str = "outbox-materialize", *, few_records: bool = False, fair_scheduling: bool = False
) -> SparkSession:
    """Start Spark, or return the session of spark-submit's driver.

    With `few_records`, code is compiled in less time but runs slower, which is faster for up to FEW_RECORDS records.
    With `fair_scheduling`, jobs of several threads share the cores equally, so a long job does not delay the others.

    The environment variables SPARK_MASTER (local mode; default: local[*]) and OUTBOX_SPARK_JARS (folder of the jars)
    apply only without spark-submit. By default, the jars are those of the checkout or, without a checkout, are
    downloaded once. Raises ConfigurationError if a jar is missing, a version is not in SUPPORTED_VERSIONS, SPARK_MASTER
    names a cluster, or Java does not start.
    """
    version_check.check_pyspark()
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    builder = SparkSession.builder.appName(name)
    settings = {**_STATIC_SETTINGS, **PINNED_SETTINGS}
    if fair_scheduling:
        settings["spark.scheduler.mode"] = "FAIR"
    if not is_submitted:
        settings |= _in_process_settings(few_records=few_records)
        builder = builder.master(_in_process_master())
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() == "JAVA_GATEWAY_EXITED":
            raise version_check.java_start_error() from error
        raise
    jvm: Any = session.sparkContext._jvm
    jvm.java.lang.System.setOut(jvm.java.lang.System.err)  # Delta's VACUUM prints to stdout, which is for results
    jar_hint = f"pass its jar to spark-submit, or add it to the folder of {JARS_VARIABLE}; see docs/materialization.md"
    check_jars(session, ALL_CLASSES, jar_hint)
    version_check.check_session(session, ALL_CLASSES)
    # The settings are set again, because spark-submit's driver may have created the session.
    for key, value in PINNED_SETTINGS.items():
        session.conf.set(key, value)
    return session


def archive_file() -> Path:
    """Return the path of the archive of classes (see class_archive), which is next to the folder of the jars."""
    return _jars_folder().parent / "classes.jsa"


def _in_process_master() -> str:
    master = os.environ.get("SPARK_MASTER", _DEFAULT_MASTER)
    # Only this process has the jars on its class path, and the driver listens only on the loopback address.
    if not master.startswith("local"):
        message = f"SPARK_MASTER is {master}: executors of a cluster would have no jars and could not reach the driver"
        raise ConfigurationError(message, "submit the job with spark-submit; see docs/materialization.md")
    return master


def _in_process_settings(*, few_records: bool) -> dict[str, str]:
    """Return the settings that replace spark-submit's options, and set environment variables for Spark's processes."""
    # Spark's Python workers need the packages of this interpreter.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # glibc creates a memory arena per thread. Arenas rarely return freed memory, so their number is limited.
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    settings = {
        # In local mode, the executor is in the driver's JVM. Unlike spark.jars, this setting does not copy files.
        "spark.driver.extraClassPath": f"{_jars_folder()}/*{f':{_PACKAGED_JAR}' if _PACKAGED_JAR.exists() else ''}",
        "spark.driver.memory": os.environ.get("OUTBOX_SPARK_MEMORY", _DRIVER_MEMORY),
        **_LOCAL_SETTINGS,
    }
    log_config = Path(__file__).parents[1] / "log4j2.properties"
    java_options = [] if _environment_sets(r"-XX:\+Use\w*GC\b") else [_GC_OPTIONS]
    archive = archive_file()
    if archive.exists() and not _environment_sets("SharedArchiveFile|ArchiveClassesAtExit"):
        java_options.append(f'"-XX:SharedArchiveFile={archive}" {SILENT_ARCHIVE}')
    if few_records and not _environment_sets("TieredStopAtLevel"):
        java_options.append(_QUICK_COMPILER)
    if log_config.exists():  # the path does not exist if this package is in a zip file
        java_options.append(f"-Dlog4j2.configurationFile={log_config.as_uri()}")
    settings["spark.driver.extraJavaOptions"] = " ".join(java_options)
    return settings


def _environment_sets(option: str) -> bool:
    """Return whether an environment variable sets an option. Java does not start if two collectors are selected."""
    variables = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
    return any(re.search(option, os.environ.get(name, "")) for name in variables)


def _jars_folder() -> Path:
    """Return the folder of the jars. Without a checkout or a configured folder, download them first."""
    configured = os.environ.get(JARS_VARIABLE)
    if not configured and not is_checkout():
        download(SPARK, partial(print, file=sys.stderr))
    folder = Path(configured) if configured else runtime_folder() / "spark" / "jars"
    if not any(folder.glob("*.jar")):
        setup = "run `make setup`, or " if is_checkout() else ""
        hint = f"{setup}set {JARS_VARIABLE} to the folder of the jars"
        raise ConfigurationError(f"no jars for Spark in {folder}", hint)
    return folder.resolve()
