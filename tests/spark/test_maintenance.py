"""The command `outbox-maintain`: fewer files, old snapshots gone, and the next run finds where it was."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from kafka_log import Log, Schemas, framed, sequence
from pyspark.sql import SparkSession
from tables import Target

from outbox_spark import maintenance
from outbox_spark.command import Exit, Tell
from outbox_spark.configuration import load_jobs
from outbox_spark.errors import ConfigurationError
from outbox_spark.maintenance import Maintained, main, maintain
from outbox_spark.model import DeltaTarget, MaterializeJob
from outbox_spark.sinks import DeltaTable, IcebergTable

PROJECT = Path(__file__).resolve().parents[2]
THING = {"type": "record", "name": "Thing", "fields": [{"name": "n", "type": "int"}]}
SCHEMAS = Schemas({1: THING}, newest=1)
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


def put(log: Log, key: str, commit: int) -> None:
    log.append(key, framed(THING, 1, {"n": commit}), sequence(commit), {"n": commit})


@pytest.mark.long
@pytest.mark.parametrize("name", ["delta_target", "iceberg_target"])
def test_after_maintenance_the_next_run_goes_on(request: pytest.FixtureRequest, name: str) -> None:
    target: Target = request.getfixturevalue(name)
    log, told = Log("test.thing"), list[str]()
    assert maintain(target.spark, [target.job], told.append)[0].done.endswith("there is no table yet")
    put(log, "a", 1)
    put(log, "b", 2)
    target.run(log, SCHEMAS)
    put(log, "a", 3)
    log.append("b", None, sequence(4))
    put(log, "c", 5)
    target.run(log, SCHEMAS)
    before = target.committed()
    expire_at_once(target)
    (result,) = maintain(target.spark, [target.job], told.append)
    assert result.error is None
    assert "thing: rewrote" in result.done
    assert told[-1] == result.done
    assert files(target) == 1
    after = target.committed()
    assert before is not None
    assert after is not None
    assert (after.offsets, after.committed_at) == (before.offsets, before.committed_at)
    put(log, "b", 1)  # the ledger still knows that it was deleted
    put(log, "c", 6)
    assert target.run(log, SCHEMAS).upserts == 1
    assert target.state("n") == {"a": {"n": 3}, "c": {"n": 6}}


def expire_at_once(target: Target) -> None:
    """Snapshots of Iceberg; Delta refuses to."""
    with target.open() as table:
        if isinstance(table, IcebergTable):
            age = "'history.expire.max-snapshot-age-ms' = '1'"
            table._sql(f"ALTER TABLE {table._name()} SET TBLPROPERTIES ({age})")


def files(target: Target) -> int:
    """How many files hold its rows."""
    with target.open() as table:
        assert isinstance(table, DeltaTable | IcebergTable)
        if isinstance(table, IcebergTable):
            # Only the commit of the progress and what came after it are left.
            assert sum(1 for _ in table._loaded().snapshots()) == 2
            return target.spark.table(f"{table._name()}.data_files").count()
        assert next(table._commits())["operation"] == "WRITE"  # the progress, after what was rewritten
        return len(table._read().inputFiles())


def test_a_table_that_fails_does_not_keep_the_others_waiting(
    delta_target: Target, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DeltaTable, "maintain", lambda table: table._path if "good" in table._path else 1 / 0)
    told: list[str] = []
    jobs = [job_at(delta_target, name) for name in ("bad", "good")]
    first, second = maintain(spark, jobs, told.append, debug=True)
    assert (first.error, first.transient) == ("ZeroDivisionError: division by zero", True)
    assert "good" in second.done
    assert any("Traceback" in line for line in told)


def job_at(target: Target, folder: str) -> MaterializeJob:
    assert isinstance(target.job.target, DeltaTarget)
    return MaterializeJob(**{**vars(target.job), "target": DeltaTarget(f"{target.job.target.path}/{folder}")})


class Session:
    """Stands for Spark: told to stop."""

    stopped = False

    def stop(self) -> None:
        self.stopped = True


@pytest.mark.parametrize(("transient", "code"), [(None, Exit.DONE), (True, Exit.FAILED), (False, Exit.REFUSED)])
def test_the_command(
    pipeline: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    transient: bool | None,
    code: Exit,
) -> None:
    def results(_: object, jobs: Sequence[MaterializeJob], __: Tell, *, debug: bool) -> list[Maintained]:
        assert not debug
        error = None if transient is None else "it failed"
        return [Maintained(job.aggregate, job.target_name, job.table, "", error, "", transient) for job in jobs]

    monkeypatch.setattr(maintenance, "maintain", results)
    session = Session()
    arguments = ["-p", str(pipeline), "-e", "testing", "--target", "lake", "--aggregate", "book"]
    assert main([*arguments, "--output", "json"], lambda _: session) == code  # type: ignore[arg-type,return-value]
    assert session.stopped
    printed = capsys.readouterr()
    (entry,) = json.loads(printed.out)["maintained"]
    assert (entry["aggregate"], entry["target"], entry["table"]) == ("book", "lake", "book")
    main(arguments, lambda _: session)  # type: ignore[arg-type,return-value]
    assert capsys.readouterr().out.startswith("lake.book  ")


def test_history_is_not_made_in_iceberg(pipeline: Path) -> None:
    text = pipeline.read_text()
    pipeline.write_text(text.replace("target: lake, table: book}", "target: lake, table: book, mode: history}"))
    assert load_jobs(pipeline, "testing", targets=["warehouse"])
    with pytest.raises(ConfigurationError, match="book -> lake: mode history is not there for Iceberg") as caught:
        load_jobs(pipeline, "testing", targets=["lake"])
    assert "PostgreSQL and in Delta" in caught.value.hint


def test_a_lease_keeps_maintenance_and_runs_apart(delta_target: Target, spark: SparkSession) -> None:
    with delta_target.open():
        (result,) = maintain(spark, [delta_target.job], lambda _: None)
    assert result.transient
    assert "another run holds" in str(result.error)
