"""Which versions the jobs run on, checked when a session starts: others fail later, in words about something else."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from outbox_spark.errors import ConfigurationError

SPARK = "4.1"
JAVA = (17, 21)
SCALA = "2.13"
SUPPORTED = f"Spark and PySpark {SPARK}.x, Java {' or '.join(map(str, JAVA))}, jars for Scala {SCALA}"
_SEE = f"supported: {SUPPORTED}"

# As Maven names them: spark-avro_2.13-4.1.1.jar, delta-spark_4.1_2.13-4.3.1.jar; Ivy puts the group in front.
_SPARK_JAR = re.compile(r"(?P<name>spark-[a-z0-9-]+?)_(?P<scala>\d+\.\d+)-(?P<spark>\d+\.\d+)[^/]*\.jar$")
_BUILT_FOR = re.compile(r"(?P<name>[a-z]+-spark)_(?P<spark>\d+\.\d+)_(?P<scala>\d+\.\d+)-[^/]*\.jar$")
_JAVA_SECONDS = 20


def check_pyspark(version: str = pyspark.__version__) -> None:
    """Raise ConfigurationError when PySpark is none that the jobs know. Needs no JVM."""
    if not _is(version, SPARK):
        raise ConfigurationError(f"PySpark is {version}", _SEE)


def check_session(session: SparkSession, classes: Iterable[str]) -> None:
    """Raise ConfigurationError when the JVM, its Spark, or a jar that holds one of `classes` does not fit."""
    jvm = session.sparkContext._jvm
    if jvm is None:  # for the type checker: a session has one
        return
    check_java(str(jvm.java.lang.System.getProperty("java.version")))
    check_spark(session.version, str(jvm.scala.util.Properties.versionNumberString()))
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for name in classes:
        source = loader.loadClass(name).getProtectionDomain().getCodeSource()
        if source is not None:
            check_jar(str(source.getLocation()))


def check_java(version: str) -> None:
    """`version` as Java says it: 17.0.12, 21."""
    major = version.partition(".")[0]
    if major not in map(str, JAVA):
        raise ConfigurationError(f"Java is {version}", f"{_SEE}; JAVA_HOME decides which Java Spark starts")


def check_spark(version: str, scala: str) -> None:
    """Spark as the JVM has it: under spark-submit it need not be the PySpark that Python imports."""
    if not _is(version, SPARK):
        raise ConfigurationError(f"Spark is {version}", _SEE)
    if not _is(scala, SCALA):
        raise ConfigurationError(f"Spark is built with Scala {scala}", _SEE)


def check_jar(location: str) -> None:
    """A jar by its name; one that does not name versions passes."""
    found = _BUILT_FOR.search(location) or _SPARK_JAR.search(location)
    if found and (found["scala"] != SCALA or found["spark"] != SPARK):
        message = f"jar {Path(location).name} is for Spark {found['spark']} and Scala {found['scala']}"
        raise ConfigurationError(message, _SEE)


def not_started() -> ConfigurationError:
    """What to say when no JVM came up: most often it is the wrong Java, or none."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else "java"
    where = f"JAVA_HOME {home}" if home else "PATH"
    try:
        asked = [java, "-version"]
        said = subprocess.run(asked, capture_output=True, text=True, timeout=_JAVA_SECONDS, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return ConfigurationError(f"Spark's Java did not start: there is no java at {where}", _SEE)
    version = re.search(r'version "([^"]+)"', said)
    found = version.group(1) if version else "of an unknown version"
    return ConfigurationError(
        f"Spark's Java did not start: java at {where} is {found}", f"{_SEE}; Spark's words are above"
    )


def _is(version: str, wanted: str) -> bool:
    return version == wanted or version.startswith(f"{wanted}.")
