"""Settings of a session that this process starts itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from outbox_events.errors import ConfigurationError
from outbox_spark.session import spark_session


def test_requires_spark_submit_for_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_MASTER", "local[2]")
    assert spark_session._in_process_master() == "local[2]"
    monkeypatch.setenv("SPARK_MASTER", "spark://cluster:7077")
    with pytest.raises(ConfigurationError, match="SPARK_MASTER is spark://cluster:7077") as caught:
        spark_session._in_process_master()
    assert "spark-submit" in caught.value.hint


def test_reports_missing_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(spark_session.JARS_VARIABLE, str(tmp_path))
    with pytest.raises(ConfigurationError, match="no jars for Spark in"):
        spark_session._in_process_settings(few_records=False)


def test_uses_an_archive_of_classes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    jars = tmp_path / "jars"
    jars.mkdir()
    (jars / "a.jar").touch()
    monkeypatch.setenv(spark_session.JARS_VARIABLE, str(jars))
    assert "Archive" not in spark_session._in_process_settings(few_records=False)["spark.driver.extraJavaOptions"]
    spark_session.archive_file().touch()
    options = spark_session._in_process_settings(few_records=False)["spark.driver.extraJavaOptions"]
    assert f'"-XX:SharedArchiveFile={tmp_path}/classes.jsa"' in options


@pytest.mark.parametrize("variable", ["SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"])
def test_keeps_configured_java_options(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    """Java does not start with two garbage collectors."""

    def options() -> str:
        return spark_session._in_process_settings(few_records=True)["spark.driver.extraJavaOptions"]

    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    monkeypatch.setenv(variable, "-XX:+UseStringDeduplication")
    assert "-XX:+UseParallelGC" in options()
    assert "-XX:TieredStopAtLevel=1" in options()
    monkeypatch.setenv(variable, "-Xlog:gc -XX:+UseG1GC -XX:TieredStopAtLevel=4")
    assert "GC" not in options()
    assert "TieredStopAtLevel" not in options()
