"""Metrics: the lines that the job writes, and the metrics that Spark's tools receive."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from tests.spark.in_memory_topic import SCHEMA, topic_in_memory
from tests.spark.job_files import write_job_file
from tests.spark.kafka_log import START, Log, framed, sequence
from tests.spark.table_under_test import job_for

from outbox_events.errors import UnreachableError
from outbox_spark.commands import metrics as module
from outbox_spark.commands.materialize import main
from outbox_spark.commands.metrics import Metrics, RunMetrics, open_metrics
from outbox_spark.commands.run_report import failed_outcome
from outbox_spark.jobs.job_file import as_text
from outbox_spark.jobs.model import DeltaTarget, MaterializeJob, Outcome, PostgresTarget, Status
from outbox_spark.kafka.offset_ranges import TopicDescription
from outbox_spark.runs import materialize_table
from outbox_spark.session.run_session import run_session
from outbox_spark.session.stage_metrics import JOB_GROUP_PREFIX, OBSERVATION, StageMetrics

JOB = job_for(DeltaTarget("/lake"))
LINE_KEYS = [
    "time", "event", "aggregate", "topic", "target", "table", "status", "batch", "records", "keys", "upserts",
    "deletes", "tombstones", "quarantined", "seconds", "from", "to", "lag", "newest", "committed_at", "error",
    "transient", "spark",
]  # fmt: skip


def things() -> Log:
    """Return eight records in one partition. The second is unreadable, and the last is a tombstone."""
    log = Log("test.thing", partitions=1)
    for number in range(7):
        value = b"nonsense" if number == 1 else framed(SCHEMA, 1, {"n": number})
        log.append(f"k{number % 4 if number != 1 else 9}", value, sequence(number))
    log.append("k0", None, sequence(7))
    return log


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


class Listener:
    """A QueryExecutionListener, in Python."""

    def __init__(self) -> None:
        self.counts: list[tuple[int, int]] = []

    def onSuccess(self, function: str, execution: Any, nanos: int) -> None:  # noqa: ANN401, ARG002, N802 - Java
        actual = execution.observedMetrics()
        if actual.contains(OBSERVATION):
            row = actual.apply(OBSERVATION)
            self.counts.append((row.getAs("records"), row.getAs("keys")))

    def onFailure(self, *_: object) -> None:  # noqa: N802 - Java
        self.counts.append((-1, -1))

    class Java:
        implements = ("org.apache.spark.sql.util.QueryExecutionListener",)


@contextmanager
def listening(spark: SparkSession) -> Iterator[Listener]:
    """Register a listener that Spark calls for every query."""
    gateway: Any = spark.sparkContext._gateway
    ensure_callback_server_started(gateway)
    listener, manager = Listener(), spark._jsparkSession.listenerManager()
    manager.register(listener)
    try:
        yield listener
    finally:
        manager.unregister(listener)


@dataclass
class MetricsOfTwoBatches:
    """Lines of a run with two batches, and the metrics that a listener received."""

    job: MaterializeJob
    lines: list[dict[str, Any]]
    observed: list[tuple[int, int]]


@pytest.fixture(scope="module")
def two_batches(spark: SparkSession, postgres: psycopg.conninfo.ConninfoDict) -> MetricsOfTwoBatches:
    address = {name: str(postgres[name]) for name in ("host", "user", "password")}
    target = PostgresTarget(**address, port=int(str(postgres["port"])), database=str(postgres["dbname"]), schema="m")
    job, stream = job_for(target), io.StringIO()
    metrics = Metrics(stream, lambda _: None)
    with topic_in_memory(things()), run_session(spark, job) as session, listening(session) as listener:
        metrics.attach(session)
        run = RunMetrics(metrics, job)
        run.write_run(materialize_table.materialize(session, job, lambda _: None, 5, on_batch=run.write_batch))
        # Spark calls listeners shortly after the query has ended.
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(5_000)
    return MetricsOfTwoBatches(job, lines(stream), listener.counts)


@pytest.fixture
def metrics_lines(two_batches: MetricsOfTwoBatches) -> list[dict[str, Any]]:
    return two_batches.lines


def test_writes_a_line_per_batch_and_one_per_run(metrics_lines: list[dict[str, Any]]) -> None:
    assert [(line["event"], line["batch"]) for line in metrics_lines] == [("batch", 1), ("batch", 2), ("run", 2)]
    assert all(list(line) == LINE_KEYS for line in metrics_lines)
    names = {"aggregate": "thing", "topic": "test.thing", "target": "target", "table": "thing"}
    assert all(names.items() <= line.items() for line in metrics_lines)
    first, second, run = metrics_lines
    assert (first["from"], first["to"], first["lag"]) == ({"0": 0}, {"0": 5}, 3)
    assert (second["from"], second["to"], second["lag"]) == ({"0": 5}, {"0": 8}, 0)
    assert (run["from"], run["to"], run["lag"]) == ({"0": 0}, {"0": 8}, 3), "three have arrived since"
    counts = ("records", "keys", "upserts", "deletes", "tombstones", "quarantined")
    assert [first[name] for name in counts] == [5, 4, 3, 0, 0, 1]
    assert [run[name] for name in counts] == [first[name] + second[name] for name in counts]
    assert (run["status"], run["error"], run["transient"]) == ("changed", None, None)


def test_writes_times_in_utc(metrics_lines: list[dict[str, Any]]) -> None:
    newest = [datetime.fromisoformat(line["newest"]) for line in metrics_lines]
    assert [(time - START).total_seconds() for time in newest] == [4, 7, 7]
    now = datetime.now(UTC)
    for line in metrics_lines:
        for name in ("time", "committed_at"):
            assert 0 <= (now - datetime.fromisoformat(line[name])).total_seconds() < 300
            assert line[name].endswith("+00:00")


def test_batch_metrics_cover_only_the_stages_of_the_batch(metrics_lines: list[dict[str, Any]]) -> None:
    first, second, run = (line["spark"] for line in metrics_lines)
    for figures in (first, second):
        assert figures["tasks"] >= 4
        assert figures["failed_tasks"] == 0
        assert figures["executor_run_ms"] > 0
        assert figures["shuffle_write_bytes"] > 0
        assert figures["shuffle_read_bytes"] > 0
        assert figures["peak_execution_memory_bytes"] > 0
        assert figures["disk_spilled_bytes"] == 0
    assert run["tasks"] == 0, "counted with the batches"


# --- lines of runs without Spark


def metrics_of(outcome: Outcome) -> dict[str, Any]:
    stream = io.StringIO()
    metrics = Metrics(stream, lambda _: None)
    RunMetrics(metrics, JOB).write_run(outcome)
    return lines(stream)[0]


def test_writes_metrics_of_a_failed_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "describe", lambda *_: pytest.fail("the broker must not be queried after a failure"))
    line = metrics_of(failed_outcome(JOB, UnreachableError("Kafka is down", "start it")))
    assert list(line) == LINE_KEYS
    assert (line["status"], line["error"], line["transient"]) == ("failed", "Kafka is down", True)
    assert (line["from"], line["to"], line["lag"], line["spark"]) == (None, None, None, None)


def test_reports_the_records_that_have_arrived_since(monkeypatch: pytest.MonkeyPatch) -> None:
    state = TopicDescription("t", "id", {0: 0, 1: 0}, {0: 9, 1: 4})
    monkeypatch.setattr(module, "describe", lambda *_: state)
    changed = Outcome("thing", "t", "target", "thing", Status.CHANGED, offsets_from={0: 8}, offsets_to={0: 9})
    assert metrics_of(changed)["lag"] == 4, "partition 1 is new"


def test_a_run_without_new_records_has_no_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "describe", lambda *_: pytest.fail("the run has just requested the offsets"))
    assert metrics_of(Outcome("thing", "t", "target", "thing", Status.UNCHANGED))["lag"] == 0


def test_lag_is_null_without_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    def down(*_: object) -> TopicDescription:
        raise UnreachableError("gone")

    monkeypatch.setattr(module, "describe", down)
    assert metrics_of(Outcome("thing", "t", "target", "thing", Status.CHANGED))["lag"] is None


# --- output of lines


def line_to(name: str, messages: list[str]) -> None:
    with open_metrics(name, messages.append) as metrics:
        assert metrics is not None
        RunMetrics(metrics, JOB).write_run(failed_outcome(JOB, UnreachableError("down")))


def test_appends_to_a_file(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    for _ in range(2):
        line_to(str(path), [])
    assert [json.loads(line)["error"] for line in path.read_text().splitlines()] == ["down", "down"]


def test_flushes_every_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with open_metrics(str(path), lambda _: None) as metrics:
        assert metrics is not None
        RunMetrics(metrics, JOB).write_run(failed_outcome(JOB, UnreachableError("down")))
        assert path.read_text().endswith("\n")


def test_dash_writes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    line_to("-", [])
    printed = capsys.readouterr()
    assert printed.out == ""
    assert json.loads(printed.err)["event"] == "run"
    assert not sys.stderr.closed


def test_writes_no_metrics_by_default() -> None:
    with open_metrics(None, lambda _: None) as metrics:
        assert metrics is None


def test_exits_when_the_metrics_file_cannot_be_opened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = write_job_file(tmp_path, as_text([JOB]))
    assert main(["--job", str(job), "--metrics", str(tmp_path / "no/m.jsonl")]) == 4
    assert "error: cannot write the metrics file" in capsys.readouterr().err


def test_reports_a_full_disk_once_and_continues() -> None:
    messages: list[str] = []
    with open_metrics("/dev/full", messages.append) as metrics:
        assert metrics is not None
        for _ in range(2):
            RunMetrics(metrics, JOB).write_run(failed_outcome(JOB, UnreachableError("down")))
    assert messages == ["warning: metrics cannot be written: No space left on device"]


# --- metrics that Spark's tools receive


def test_query_listener_receives_counts_of_every_batch_once(two_batches: MetricsOfTwoBatches) -> None:
    batches = [(line["records"], line["keys"]) for line in two_batches.lines if line["event"] == "batch"]
    assert two_batches.observed == batches == [(5, 4), (3, 3)]


def test_spark_jobs_are_named_by_table_and_step(spark: SparkSession, two_batches: MetricsOfTwoBatches) -> None:
    """The UI, the history server and lineage tools show these names."""
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    actual = [jobs.apply(index) for index in range(jobs.size())]
    group = f"{JOB_GROUP_PREFIX}{two_batches.job}"
    ours = [job for job in actual if job.jobGroup().isDefined() and job.jobGroup().get() == group]
    steps = {job.description().get().partition(": ")[2] for job in ours}
    assert steps >= {"reduce to the newest record of each key, decode, stage", "write"}


def test_counts_failed_tasks_of_the_group(spark: SparkSession) -> None:
    work, context = StageMetrics(spark), spark.sparkContext
    for group in ("other", "ours"):
        context.setJobGroup(group, group)
        with pytest.raises(Exception, match="USER_RAISED_EXCEPTION"):
            spark.range(0, 4, 1, 2).select(F.raise_error(F.concat(F.lit(group), F.col("id")))).collect()
    spark.range(1).collect()
    context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]  # None removes it
    spark.range(9).repartition(9).collect()
    figures = work.since_last("ours")
    assert figures["failed_tasks"] >= 1
    assert 1 <= figures["tasks"] <= 3, "of the group only: one of range(1), and tasks beside the one that failed"
    assert work.since_last("ours")["tasks"] == 0
    assert work.since_last("other")["failed_tasks"] >= 1, "each group has its own previous call"
