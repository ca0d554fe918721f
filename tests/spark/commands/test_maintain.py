"""The command `outbox-maintain` reduces the number of files, removes expired snapshots, and retains the progress."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import structs
from pyspark.sql import SparkSession
from tests.spark.kafka_log import Log
from tests.spark.table_under_test import Target
from tests.spark.thing_records import SCHEMAS, delete, put

from outbox_events.errors import ConfigurationError, OutboxError, RefusedError
from outbox_spark.commands import maintain as maintain_command
from outbox_spark.commands import run_each
from outbox_spark.commands.exit_codes import Exit
from outbox_spark.commands.maintain import MaintainedTable, failed_maintenance, main, maintain
from outbox_spark.commands.run_each import run_jobs
from outbox_spark.errors import OverlapError
from outbox_spark.jobs.from_pipeline import load_jobs
from outbox_spark.jobs.model import DeltaTarget, MaterializeJob
from outbox_spark.sinks import DeltaTable, IcebergTable

PROJECT = Path(__file__).resolve().parents[3]
ENVIRONMENT = """
name: testing
source:
  {host: db, database: d, admin: {user: u, password: p}, connector: {user: c, password: "${env:CONNECTOR_PASSWORD}"}}
kafka: {bootstrap_servers: "broker:9092"}
registry: {url: "http://registry"}
connect: {url: "http://connect"}
targets:
  warehouse: {kind: delta, path: build/warehouse}
  lake: {kind: iceberg, namespace: library, catalog: {type: hadoop, warehouse: build/lake}}
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    shutil.copytree(PROJECT / "schemas", tmp_path / "schemas")
    (tmp_path / "connectors/environments").mkdir(parents=True)
    shutil.copy(PROJECT / "connectors/library.yaml", tmp_path / "connectors")
    (tmp_path / "connectors/environments/testing.yaml").write_text(ENVIRONMENT)
    return tmp_path / "connectors/library.yaml"


@pytest.mark.long
@pytest.mark.parametrize("name", ["delta_target", "iceberg_target"])
def test_next_run_continues_after_maintenance(request: pytest.FixtureRequest, name: str) -> None:
    target: Target = request.getfixturevalue(name)
    log, messages = Log("test.thing"), list[str]()
    assert maintain(target.spark, target.job, messages.append).done.endswith("the table does not exist yet")
    put(log, "a", 1)
    put(log, "b", 2)
    target.run(log, SCHEMAS)
    put(log, "a", 3)
    delete(log, "b", 4)
    put(log, "c", 5)
    target.run(log, SCHEMAS)
    before = target.committed()
    expire_at_once(target)
    result = maintain(target.spark, target.job, messages.append)
    assert result.error is None
    assert "thing: rewrote" in result.done
    assert messages[-1] == result.done
    assert files(target) == 1
    after = target.committed()
    assert before is not None
    assert after is not None
    assert (after.offsets, after.committed_at) == (before.offsets, before.committed_at)
    put(log, "b", 1)  # the ledger still contains the key's deletion
    put(log, "c", 6)
    assert target.run(log, SCHEMAS).upserts == 1
    assert target.state("n") == {"a": {"n": 3}, "c": {"n": 6}}


def test_refuses_the_table_of_another_topic(target: Target) -> None:
    log, messages = Log("test.thing"), list[str]()
    put(log, "a", 1)
    target.run(log, SCHEMAS)
    with pytest.raises(RefusedError, match=r"written from topic test\.thing"):
        maintain(target.spark, structs.replace(target.job, topic="other.thing"), messages.append)
    assert maintain(target.spark, target.job, messages.append).error is None


def expire_at_once(target: Target) -> None:
    """Let snapshots of Iceberg expire immediately, which Delta does not allow."""
    with target.open() as table:
        if isinstance(table, IcebergTable):
            age = "'history.expire.max-snapshot-age-ms' = '1'"
            table._storage.execute(f"ALTER TABLE {table._storage.sql_name()} SET TBLPROPERTIES ({age})")


def files(target: Target) -> int:
    """Return the number of data files."""
    with target.open() as table:
        assert isinstance(table, DeltaTable | IcebergTable)
        if isinstance(table, IcebergTable):
            # Only the snapshot with the progress and later snapshots remain.
            assert sum(1 for _ in table._storage.load().snapshots()) == 2
            return target.spark.table(f"{table._storage.sql_name()}.data_files").count()
        assert next(table._storage.commits())["operation"] == "WRITE"  # of the progress, after the rewrite
        return len(table._storage.read().inputFiles())


def test_maintains_remaining_tables_after_a_failure(
    delta_target: Target, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DeltaTable, "maintain", lambda table: table._label if "good" in table._label else 1 / 0)
    monkeypatch.setattr(run_each, "start_session", lambda _, **__: spark)
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)
    messages: list[str] = []
    jobs = [job_at(delta_target, name) for name in ("bad", "good")]

    def work(_: SparkSession, job: MaterializeJob) -> MaintainedTable:
        return maintain(spark, job, messages.append)

    first, second = run_jobs(jobs, messages.append, work, failed_maintenance, debug=True)
    assert (first.error, first.transient) == ("ZeroDivisionError: division by zero", True)
    assert "good" in second.done
    assert any("Traceback" in line for line in messages)


def job_at(target: Target, folder: str) -> MaterializeJob:
    assert isinstance(target.job.target, DeltaTarget)
    return structs.replace(target.job, target=DeltaTarget(f"{target.job.target.path}/{folder}"))


class Session:
    """Replaces the Spark session."""

    stopped = False

    def stop(self) -> None:
        self.stopped = True


@pytest.mark.parametrize(
    ("error", "code"),
    [(None, Exit.DONE), (OutboxError("it failed"), Exit.FAILED), (RefusedError("it failed"), Exit.REFUSED)],
)
def test_command_prints_the_result_of_each_table(
    pipeline: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: OutboxError | None,
    code: Exit,
) -> None:
    def result(_: object, job: MaterializeJob, __: object) -> MaintainedTable:
        if error is not None:
            raise error
        return MaintainedTable(job.aggregate, job.target_name, job.table, "compacted")

    session = Session()
    monkeypatch.setattr(maintain_command, "maintain", result)
    monkeypatch.setattr(run_each, "start_session", lambda _, **__: session)
    arguments = ["-p", str(pipeline), "-e", "testing", "--target", "lake", "--aggregate", "book"]
    assert main([*arguments, "--output", "json"]) == code
    assert session.stopped
    printed = capsys.readouterr()
    (entry,) = json.loads(printed.out)["maintained"]
    assert (entry["aggregate"], entry["target"], entry["table"]) == ("book", "lake", "book")
    main(arguments)
    assert capsys.readouterr().out == f"lake.book  {'failed: it failed' if error else 'compacted'}\n"


def test_result_cannot_control_the_terminal(
    pipeline: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = "\x1b[2J\nforged \u202e"
    results = [MaintainedTable("a", "lake", "t", hostile), MaintainedTable("b", "lake", "t", error=hostile)]
    monkeypatch.setattr(maintain_command, "run_jobs", lambda *_, **__: results)
    escaped = r"\x1b[2J\nforged \u202e"
    main(["-p", str(pipeline), "-e", "testing"])
    assert capsys.readouterr().out.splitlines() == [f"lake.t  {escaped}", f"lake.t  failed: {escaped}"]
    main(["-p", str(pipeline), "-e", "testing", "--output", "json"])
    assert json.loads(capsys.readouterr().out)["maintained"][0]["done"] == hostile


def test_rejects_history_mode_in_iceberg(pipeline: Path) -> None:
    text = pipeline.read_text()
    pipeline.write_text(text.replace("target: lake, table: book}", "target: lake, table: book, mode: history}"))
    assert load_jobs(pipeline, "testing", targets=["warehouse"])
    with pytest.raises(ConfigurationError, match=r"book -> lake: .*mode history") as caught:
        load_jobs(pipeline, "testing", targets=["lake"])
    assert "postgres or delta" in caught.value.hint


def test_lease_excludes_concurrent_maintenance_and_runs(delta_target: Target, spark: SparkSession) -> None:
    with delta_target.open(), pytest.raises(OverlapError, match="another run holds"):
        maintain(spark, delta_target.job, lambda _: None)


@pytest.mark.long
def test_output_of_java_is_not_in_the_result(tmp_path: Path) -> None:
    """Delta's VACUUM prints messages to Scala's console."""
    program = """
from outbox_spark.session.spark_session import start_session
jvm = start_session("test-stdout").sparkContext._jvm
jvm.scala.Console.println("Deleted 0 files")
jvm.java.lang.System.out.println("second line")
print("the result")
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert done.stdout == "the result\n"
    assert "Deleted 0 files\nsecond line\n" in done.stderr
