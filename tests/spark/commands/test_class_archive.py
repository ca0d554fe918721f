"""The archive of classes with which Spark starts faster."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.table_under_test import job_for

from outbox_spark.commands.class_archive import load_classes
from outbox_spark.jobs.model import DeltaTarget
from outbox_spark.session.run_session import run_session
from outbox_spark.session.spark_session import JARS_VARIABLE, archive_file

MAPPED = """
from outbox_spark.session.spark_session import start_session
jvm = start_session("archived").sparkContext._jvm
print("classes.jsa" in open(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/maps").read())
"""


@pytest.mark.long
def test_queries_that_load_the_classes(spark: SparkSession, tmp_path: Path) -> None:
    with run_session(spark, job_for(DeltaTarget("unused"))) as session:
        load_classes(session, tmp_path)


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="the mapped files are read from /proc")
def test_java_uses_the_archive(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    jars = tmp_path / "jars"
    jars.mkdir()
    for jar in (archive_file().parent / "jars").glob("*.jar"):
        (jars / jar.name).symlink_to(jar)
    monkeypatch.setenv(JARS_VARIABLE, str(jars))
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    subprocess.run([sys.executable, "-m", "outbox_spark.commands.class_archive"], check=True, timeout=300)
    result = subprocess.run([sys.executable, "-c", MAPPED], check=True, timeout=120, stdout=subprocess.PIPE, text=True)
    assert result.stdout == "True\n"
