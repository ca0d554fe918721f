"""Check the versions of Spark, Java and jars at start, because unsupported versions fail later with unclear errors."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from outbox_events.errors import ConfigurationError

SPARK_VERSION = "4.1"
JAVA_VERSIONS = (17, 21)
SCALA_VERSION = "2.13"
_JAVA = " or ".join(map(str, JAVA_VERSIONS))
SUPPORTED_VERSIONS = f"Spark and PySpark {SPARK_VERSION}.x, Java {_JAVA}, jars for Scala {SCALA_VERSION}"
_HINT = f"use {SUPPORTED_VERSIONS}"
_JAVA_HINT = f"{_HINT}; set JAVA_HOME to the folder of Java {_JAVA}"

# Maven's file names, such as spark-avro_2.13-4.1.1.jar and delta-spark_4.1_2.13-4.3.1.jar. Ivy prepends the group.
_SPARK_JAR = re.compile(r"(?P<name>spark-[a-z0-9-]+?)_(?P<scala>\d+\.\d+)-(?P<spark>\d+\.\d+)[^/]*\.jar$")
_DELTA_JAR = re.compile(r"(?P<name>[a-z]+-spark)_(?P<spark>\d+\.\d+)_(?P<scala>\d+\.\d+)-[^/]*\.jar$")
_TIMEOUT_SECONDS = 20


def check_pyspark(version: str = pyspark.__version__) -> None:
    """Raise ConfigurationError if the version of PySpark is not supported. This check does not require a JVM."""
    if not _matches(version, SPARK_VERSION):
        raise ConfigurationError(f"PySpark is {version}, which is not supported", _HINT)


def check_session(session: SparkSession, class_names: Iterable[str]) -> None:
    """Raise ConfigurationError when Java, Spark, Scala, or a jar with one of the classes has an unsupported version."""
    jvm: Any = session.sparkContext._jvm
    check_java(str(jvm.java.lang.System.getProperty("java.version")))
    check_spark(session.version, str(jvm.scala.util.Properties.versionNumberString()))
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for name in class_names:
        source = loader.loadClass(name).getProtectionDomain().getCodeSource()
        if source is not None:
            check_jar(str(source.getLocation()))


def check_java(version: str) -> None:
    """Raise ConfigurationError if a version in the form of `java.version` (17.0.12, 21) is not supported."""
    major_version = version.partition(".")[0]
    if major_version not in map(str, JAVA_VERSIONS):
        raise ConfigurationError(f"Java is {version}, which is not supported", _JAVA_HINT)


def check_spark(version: str, scala_version: str) -> None:
    """Raise ConfigurationError if Spark in the JVM (which can differ from PySpark) or Scala is unsupported."""
    if not _matches(version, SPARK_VERSION):
        raise ConfigurationError(f"Spark is {version}, which is not supported", _HINT)
    if not _matches(scala_version, SCALA_VERSION):
        raise ConfigurationError(f"Spark is built with Scala {scala_version}, which is not supported", _HINT)


def check_jar(location: str) -> None:
    """Raise ConfigurationError when the file name of a jar contains an unsupported version of Spark or Scala."""
    versions = _DELTA_JAR.search(location) or _SPARK_JAR.search(location)
    if versions and (versions["scala"] != SCALA_VERSION or versions["spark"] != SPARK_VERSION):
        message = f"jar {Path(location).name} is built for Spark {versions['spark']} and Scala {versions['scala']}"
        raise ConfigurationError(message, _HINT)


def java_start_error() -> ConfigurationError:
    """Return the error for a JVM that did not start, usually because Java is missing or has an unsupported version."""
    java_home = os.environ.get("JAVA_HOME")
    java = str(Path(java_home) / "bin" / "java") if java_home else "java"
    location = f"JAVA_HOME {java_home}" if java_home else "PATH"
    try:
        command = [java, "-version"]
        output = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        message = f"Spark's JVM did not start: java in {location} is missing or does not respond"
        return ConfigurationError(message, _JAVA_HINT)
    version = re.search(r'version "([^"]+)"', output)
    actual = f"has version {version.group(1)}" if version else "printed no version"
    message = f"Spark's JVM did not start: java in {location} {actual}"
    return ConfigurationError(message, f"see the output of Spark above, and {_HINT}")


def _matches(version: str, expected: str) -> bool:
    return version == expected or version.startswith(f"{expected}.")
