"""Checks versions of Spark, Java and jars at start, because unsupported versions fail later with unclear errors."""

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
_HINT = f"supported: {SUPPORTED}"

# File names as in Maven: spark-avro_2.13-4.1.1.jar, delta-spark_4.1_2.13-4.3.1.jar; Ivy adds the group in front.
_SPARK_JAR = re.compile(r"(?P<name>spark-[a-z0-9-]+?)_(?P<scala>\d+\.\d+)-(?P<spark>\d+\.\d+)[^/]*\.jar$")
_BUILT_FOR = re.compile(r"(?P<name>[a-z]+-spark)_(?P<spark>\d+\.\d+)_(?P<scala>\d+\.\d+)-[^/]*\.jar$")
_JAVA_SECONDS = 20


def check_pyspark(version: str = pyspark.__version__) -> None:
    """Raise ConfigurationError when the version of PySpark is not supported. Needs no JVM."""
    if not _matches(version, SPARK):
        raise ConfigurationError(f"PySpark is {version}, which is not supported", _HINT)


def check_session(session: SparkSession, classes: Iterable[str]) -> None:
    """Raise ConfigurationError when Java, Spark, or a jar with one of `classes` has an unsupported version."""
    jvm = session.sparkContext._jvm
    if jvm is None:  # only for the type checker
        return
    check_java(str(jvm.java.lang.System.getProperty("java.version")))
    check_spark(session.version, str(jvm.scala.util.Properties.versionNumberString()))
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for name in classes:
        source = loader.loadClass(name).getProtectionDomain().getCodeSource()
        if source is not None:
            check_jar(str(source.getLocation()))


def check_java(version: str) -> None:
    """Check a version as in `java.version`: 17.0.12, 21."""
    major = version.partition(".")[0]
    if major not in map(str, JAVA):
        raise ConfigurationError(
            f"Java is {version}, which is not supported", f"{_HINT}; set JAVA_HOME to the Java that Spark starts"
        )


def check_spark(version: str, scala: str) -> None:
    """Check the Spark of the JVM: with spark-submit it may differ from the PySpark that Python imports."""
    if not _matches(version, SPARK):
        raise ConfigurationError(f"Spark is {version}, which is not supported", _HINT)
    if not _matches(scala, SCALA):
        raise ConfigurationError(f"Spark is built with Scala {scala}, which is not supported", _HINT)


def check_jar(location: str) -> None:
    """Check the versions in the name of a jar; a name without versions passes."""
    built = _BUILT_FOR.search(location) or _SPARK_JAR.search(location)
    if built and (built["scala"] != SCALA or built["spark"] != SPARK):
        message = f"jar {Path(location).name} is built for Spark {built['spark']} and Scala {built['scala']}"
        raise ConfigurationError(message, _HINT)


def not_started() -> ConfigurationError:
    """Return the error for a JVM that did not start; usually Java is missing or has an unsupported version."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else "java"
    location = f"JAVA_HOME {home}" if home else "PATH"
    try:
        command = [java, "-version"]
        output = subprocess.run(command, capture_output=True, text=True, timeout=_JAVA_SECONDS, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return ConfigurationError(f"Spark's JVM did not start: no java in {location}", _HINT)
    version = re.search(r'version "([^"]+)"', output)
    actual = version.group(1) if version else "of an unknown version"
    return ConfigurationError(
        f"Spark's JVM did not start: java in {location} is {actual}", f"{_HINT}; the output of Spark is above"
    )


def _matches(version: str, expected: str) -> bool:
    return version == expected or version.startswith(f"{expected}.")
