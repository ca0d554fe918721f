"""Versions that the jobs accept, and errors for other versions."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from outbox_events.errors import ConfigurationError
from outbox_spark.session import spark_session, version_check
from outbox_spark.session.requirements import ALL_CLASSES

JARS = Path(__file__).resolve().parents[3] / "build/runtime/spark/jars"


def test_accepts_this_session(spark: SparkSession) -> None:
    version_check.check_session(spark, ALL_CLASSES)


def test_accepts_every_resolved_jar() -> None:
    names = [path.name for path in JARS.glob("*.jar")]
    versioned = [
        name for name in names if version_check._SPARK_JAR.search(name) or version_check._DELTA_JAR.search(name)
    ]
    assert {name.partition("_")[0] for name in versioned} >= {"spark-avro", "spark-sql-kafka-0-10", "delta-spark"}
    for name in versioned:
        # Delta depends on support libraries of another minor version, which do not contain a class that is checked.
        if not name.startswith(("spark-tags", "spark-token-provider")):
            version_check.check_jar(f"file:/jars/{name}")


@pytest.mark.parametrize(
    ("name", "spark", "scala"),
    [
        ("spark-avro_2.13-4.0.1.jar", "4.0", "2.13"),
        ("spark-avro_2.12-4.1.1.jar", "4.1", "2.12"),
        ("org.apache.spark_spark-sql-kafka-0-10_2.12-3.5.1.jar", "3.5", "2.12"),
        ("delta-spark_4.0_2.13-4.3.1.jar", "4.0", "2.13"),
    ],
)
def test_rejects_a_jar_for_another_spark_or_scala(name: str, spark: str, scala: str) -> None:
    with pytest.raises(ConfigurationError, match=f"jar {name} .* Spark {spark} and Scala {scala}") as caught:
        version_check.check_jar(f"file:/opt/jars/{name}")
    assert version_check.SUPPORTED_VERSIONS in caught.value.hint


@pytest.mark.parametrize("name", ["postgresql-42.7.14.jar", "my-fat.jar", "delta-storage-4.3.1.jar"])
def test_accepts_a_jar_without_versions(name: str) -> None:
    version_check.check_jar(f"file:/opt/jars/{name}")


@pytest.mark.parametrize("version", ["3.5.1", "4.0.1", "4.10.0", "4.2.0"])
def test_rejects_another_spark_version(version: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"PySpark is {version}"):
        version_check.check_pyspark(version)
    with pytest.raises(ConfigurationError, match=rf"Spark is {version}"):
        version_check.check_spark(version, "2.13.16")


def test_rejects_another_scala_version() -> None:
    with pytest.raises(ConfigurationError, match=r"Scala 2\.12\.18"):
        version_check.check_spark("4.1.1", "2.12.18")


@pytest.mark.parametrize(("version", "fits"), [("17.0.12", True), ("21", True), ("11.0.2", False), ("1.8.0", False)])
def test_checks_the_java_version(version: str, fits: bool) -> None:
    if fits:
        version_check.check_java(version)
        return
    with pytest.raises(ConfigurationError, match=f"Java is {version}") as caught:
        version_check.check_java(version)
    assert "JAVA_HOME" in caught.value.hint


def test_reports_java_that_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's error states only that the gateway exited."""
    java = tmp_path / "bin/java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    def exited(_: object) -> None:
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    monkeypatch.setattr("pyspark.sql.SparkSession.Builder.getOrCreate", exited)
    with pytest.raises(ConfigurationError, match=rf"{tmp_path} has version 11\.0\.2"):
        spark_session.start_session()
    java.unlink()
    with pytest.raises(ConfigurationError, match="does not respond"):
        spark_session.start_session()
