"""The Python API: the newest states and the changes of a topic in the caller's session, regardless of its settings."""

from __future__ import annotations

import json
import logging
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.in_memory_topic import topic_in_memory
from tests.spark.job_files import write_job_file
from tests.spark.kafka_log import Log, as_frame, framed, sequence
from tests.spark.table_under_test import Target, job_for

import outbox_spark
from outbox_events.errors import ConfigurationError
from outbox_spark import library
from outbox_spark.jobs.job_file import as_text
from outbox_spark.jobs.model import DeltaTarget
from outbox_spark.session import requirements
from outbox_spark.session.requirements import check_application

STREAM_EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "embedding" / "stream.py"
JOB = job_for(DeltaTarget("/lake"))
AT = {"type": "long", "logicalType": "timestamp-micros"}
CLOCK = {"type": "long", "logicalType": "time-micros"}
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Thing",
    "fields": [{"name": "n", "type": "int"}, {"name": "at", "type": AT}, {"name": "clock", "type": CLOCK}],
}
NOON = "12:00:00.123456"
OLD = datetime(1500, 3, 1, 3, 30, tzinfo=UTC)
OLD_MICROS = (OLD - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def thing(n: int) -> bytes:
    return framed(SCHEMA, 1, {"n": n, "at": OLD, "clock": time(12, 0, 0, 123456)})


@pytest.fixture
def log() -> Log:
    """Return states of a and b, a deletion of c, unreadable records of d and e, and two records that have no row."""
    log = Log("test.thing")
    for commit, (key, value) in enumerate(
        [("a", thing(1)), ("b", thing(2)), ("c", thing(3)), ("a", thing(4)), ("c", None), ("d", b"bad")], start=1
    ):
        log.append(key, value, sequence(commit))
    log.append("e", b"\x00\x00\x00\x00\x63rest", sequence(7))
    log.append(None, thing(8), sequence(8))
    log.append("a", thing(9), "malformed")
    return log


@pytest.fixture
def caller(spark: SparkSession, log: Log) -> Iterator[SparkSession]:
    """Yield a session with unusual settings, in which the topic is `log`."""
    session = spark.newSession()
    settings = {
        "spark.sql.session.timeZone": "America/St_Johns",
        "spark.sql.ansi.enabled": "false",
        "spark.sql.caseSensitive": "true",
        "spark.sql.avro.datetimeRebaseModeInRead": "LEGACY",
        "spark.sql.legacy.timeParserPolicy": "LEGACY",
    }
    for key, value in settings.items():
        session.conf.set(key, value)
    with topic_in_memory(log, SCHEMA):
        yield session


@pytest.fixture
def _stream(spark: SparkSession, log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a stream of the topic read the records of `log` from files."""
    as_frame(spark, log.topic, log.records).coalesce(1).write.parquet(str(tmp_path / "topic"))
    schema = spark.read.parquet(str(tmp_path / "topic")).schema

    def stream(spark: SparkSession, *_: object) -> DataFrame:
        return spark.readStream.schema(schema).parquet(str(tmp_path / "topic"))

    monkeypatch.setattr(library, "stream_records", stream)


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    """Return the key, the fields and the reason of each row, sorted."""
    rows = frame.selectExpr("aggregate_id", "n", "unix_micros(at) AS at", "clock", "__outbox_reason").collect()
    return sorted(map(tuple, rows), key=str)


def test_reads_the_newest_states(caller: SparkSession) -> None:
    state = outbox_spark.read_state(caller, JOB)
    assert state.columns[:4] == ["aggregate_id", "n", "at", "clock"]
    reasons = [("d", "not-wire-format"), ("e", "unknown-schema-id"), (None, "invalid:_sequence"), (None, "no-key")]
    assert rows_of(state) == [
        ("a", 4, OLD_MICROS, NOON, None),
        ("b", 2, OLD_MICROS, NOON, None),
        *[(key, None, None, None, reason) for key, reason in reasons],
    ]
    state.createOrReplaceTempView("state")
    assert caller.sql("SELECT count(*) FROM state").collect()[0][0] == 6, "a frame of the caller's session"


@pytest.mark.usefixtures("_stream")
def test_streams_every_record(caller: SparkSession) -> None:
    changes = outbox_spark.read_changes(caller, JOB)
    assert changes.isStreaming
    query = changes.writeStream.format("memory").queryName("changes").trigger(availableNow=True).start()
    query.awaitTermination(120)
    rows = {(row.aggregate_id, row._sequence): row for row in caller.table("changes").collect()}
    assert len(rows) == 9
    deleted = {key for key, row in rows.items() if row["__outbox_deleted"]}
    assert deleted == {("c", sequence(5))}
    assert [rows["a", sequence(number)].n for number in (1, 4)] == [1, 4]
    assert rows["e", sequence(7)]["__outbox_reason"] == "unknown-schema-id"
    assert bytes(rows["d", sequence(6)]["__outbox_value"]) == b"bad"
    times = caller.table("changes").selectExpr("unix_micros(at)", "clock").where("at IS NOT NULL").distinct().collect()
    assert [tuple(row) for row in times] == [(OLD_MICROS, NOON)]


@pytest.mark.usefixtures("_stream")
def test_example_writes_a_repeated_batch_once(
    caller: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a crash in a micro-batch, Spark repeats the batch, because the batch's commit file is missing."""
    output, checkpoint = tmp_path / "changes", tmp_path / "checkpoint"
    job_file = write_job_file(tmp_path, as_text([JOB]))
    names = {"JOB_FILE": job_file, "STREAM_OUTPUT": output, "STREAM_CHECKPOINT": checkpoint}
    for name, path in names.items():
        monkeypatch.setenv(f"OUTBOX_{name}", str(path))
    runpy.run_path(str(STREAM_EXAMPLE))
    shutil.rmtree(checkpoint / "commits")
    runpy.run_path(str(STREAM_EXAMPLE))
    assert (checkpoint / "commits" / "0").exists()
    assert caller.read.json(str(output)).count() == 9


def test_materializes_in_the_callers_application(
    caller: SparkSession, postgres_target: Target, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "outbox_spark"):
        outcome = outbox_spark.materialize(caller, postgres_target.job)
    levels = {record.levelno: record.getMessage() for record in caplog.records if record.name == "outbox_spark"}
    assert levels.keys() == {logging.INFO, logging.WARNING}
    assert levels[logging.WARNING].startswith("test.thing: 4 records could not be read")
    assert (outcome.status, outcome.records, outcome.upserts) == (outbox_spark.Status.CHANGED, 9, 2)
    assert outbox_spark.materialize(caller, postgres_target.job).status is outbox_spark.Status.UNCHANGED


def test_reads_a_job_file(tmp_path: Path) -> None:
    assert outbox_spark.read_jobs(str(write_job_file(tmp_path, as_text([JOB])))) == [JOB]


def test_reports_what_the_application_lacks(
    spark: SparkSession, delta_target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_application(spark, delta_target.job.target)
    with pytest.raises(ConfigurationError, match="Spark Connect"):
        check_application(object())  # type: ignore[arg-type]
    monkeypatch.setattr(requirements, "_EXTENSIONS", {DeltaTarget: "not.Configured"})
    with pytest.raises(ConfigurationError, match=r"spark\.sql\.extensions .*not\.Configured"):
        outbox_spark.materialize(spark, delta_target.job)
    monkeypatch.setattr(requirements, "_TOPIC_CLASSES", ("no.SuchClass",))
    with pytest.raises(ConfigurationError, match=r"class no\.SuchClass"):
        outbox_spark.read_state(spark, delta_target.job)


def test_import_loads_neither_spark_nor_the_deploy_tool() -> None:
    program = """
import json, sys, outbox_spark
before = [name for name in ("pyspark", "outbox_kit", "msgspec") if name in sys.modules]
found = [callable(getattr(outbox_spark, name)) for name in outbox_spark.__all__]
print(json.dumps([before, all(found), "outbox_kit" in sys.modules, hasattr(outbox_spark, "other")]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert json.loads(done.stdout) == [[], True, False, False]
