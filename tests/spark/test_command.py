"""The command line: what goes to stdout and stderr, and the exit codes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from outbox_spark import jobs, session
from outbox_spark.command import Exit
from outbox_spark.configuration import load_jobs
from outbox_spark.errors import ConfigurationError, RefusedError
from outbox_spark.jobs import main
from outbox_spark.model import DeltaTarget, MaterializeJob, Outcome, PostgresTarget, Registry, Status

PROJECT = Path(__file__).resolve().parents[2]

ENVIRONMENT = """
name: testing
source:
  {host: db, database: d, admin: {user: u, password: "{{ env.ABSENT }}"}, connector: {user: c, password: p}}
kafka: {bootstrap_servers: "broker:9092", client: {security.protocol: SSL}}
registry: {url: "http://registry", username: ru, password: "{{ env.REGISTRY_PASSWORD }}"}
connect: {url: "http://connect"}
targets:
  warehouse:
    {kind: postgres, host: wh, port: 5433, database: w, user: m, password: "{{ env.TARGET_PASSWORD }}", schema: library}
  lake: {kind: delta, path: build/lake}
"""


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipeline file of its own, with an environment `testing`."""
    shutil.copytree(PROJECT / "schemas", tmp_path / "schemas")
    (tmp_path / "connectors/environments").mkdir(parents=True)
    shutil.copy(PROJECT / "connectors/library.yaml", tmp_path / "connectors")
    (tmp_path / "connectors/environments/testing.yaml").write_text(ENVIRONMENT)
    monkeypatch.setenv("REGISTRY_PASSWORD", "r3gistry")
    monkeypatch.setenv("TARGET_PASSWORD", "t4rget")
    return tmp_path / "connectors/library.yaml"


def test_jobs_come_from_the_pipeline_and_the_environment(pipeline: Path) -> None:
    found = load_jobs(pipeline, "testing", aggregates=["book"])
    warehouse, lake = sorted(found, key=lambda job: job.target_name, reverse=True)
    assert warehouse == MaterializeJob(
        aggregate="book",
        topic="library.book",
        table="book",
        kafka={"bootstrap.servers": "broker:9092", "security.protocol": "SSL"},
        registry=Registry("http://registry", "ru", "r3gistry"),
        target_name="warehouse",
        target=PostgresTarget("wh", 5433, "w", "m", "t4rget", "library"),
    )
    assert lake.target == DeltaTarget(str(pipeline.parent.parent / "build/lake"))
    assert not {"r3gistry", "t4rget"} & set(repr(found).replace("'", " ").split())


def test_jobs_see_what_the_environment_and_variables_change(pipeline: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a job would read the topics of another prefix than the connector writes."""
    file = pipeline.parent / "environments/testing.yaml"
    file.write_text(f"{ENVIRONMENT}pipeline: {{prefix: eu}}\n")
    assert {job.topic for job in load_jobs(pipeline, "testing")} == {"eu.author", "eu.book"}
    monkeypatch.setenv("OUTBOX__PREFIX", "us")
    monkeypatch.setenv("OUTBOX__ENVIRONMENT__KAFKA__BOOTSTRAP_SERVERS", "other:9092")
    found = load_jobs(pipeline, "testing")
    assert {job.topic for job in found} == {"us.author", "us.book"}
    assert {job.kafka["bootstrap.servers"] for job in found} == {"other:9092"}


def test_a_selection_of_nothing_is_an_error(pipeline: Path) -> None:
    with pytest.raises(ConfigurationError, match="no materialization is selected") as caught:
        load_jobs(pipeline, "testing", aggregates=["reader"])
    assert "book -> lake" in caught.value.hint


def test_a_target_that_the_environment_lacks(pipeline: Path) -> None:
    file = pipeline.parent / "environments/testing.yaml"
    file.write_text("\n".join(line for line in ENVIRONMENT.splitlines() if "lake:" not in line))
    with pytest.raises(ConfigurationError, match="has no target 'lake'; it has: warehouse"):
        load_jobs(pipeline, "testing")


OUTCOME = Outcome(
    "book", "library.book", "lake", "book", Status.CHANGED, 5, 4, 2, 1, 1, 0, 1, 1.5, {0: 0, 1: 2}, {0: 3, 1: 4}
)


def test_json_on_stdout_and_words_on_stderr(
    pipeline: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(
        found: Sequence[MaterializeJob], tell: jobs.Tell, *, debug: bool, export_to: Path | None, max_records: int
    ) -> list[Outcome]:
        tell(f"{len(found)} jobs, debug {debug}, export {export_to}, at most {max_records}")
        return [OUTCOME]

    monkeypatch.setattr(jobs, "run", run)
    assert main(["-p", str(pipeline), "-e", "testing", "--target", "lake", "--output", "json"]) == 0
    printed = capsys.readouterr()
    assert printed.err == "2 jobs, debug False, export None, at most 5000000\n"
    assert json.loads(printed.out) == {
        "materializations": [
            {
                "aggregate": "book",
                "topic": "library.book",
                "target": "lake",
                "table": "book",
                "status": "changed",
                "records": 5,
                "keys": 4,
                "upserts": 2,
                "deletes": 1,
                "tombstones": 1,
                "quarantined": 0,
                "batches": 1,
                "seconds": 1.5,
                "offsets": {"from": {"0": 0, "1": 2}, "to": {"0": 3, "1": 4}},
                "error": None,
                "hint": None,
                "transient": None,
            }
        ]
    }
    assert main(["-p", str(pipeline), "-e", "testing"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert table[0].split()[:4] == ["aggregate", "target", "table", "status"]
    assert table[1].split()[:6] == ["book", "lake", "book", "changed", "5", "4"]


def test_a_job_that_fails_does_not_keep_the_others_from_running(
    spark: SparkSession, pipeline: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def materialize(_: SparkSession, job: MaterializeJob, tell: jobs.Tell, ___: int) -> Outcome:
        tell(f"at {job}")
        if job.aggregate == "author":
            raise RefusedError("offsets do not fit", "look at the topic")
        return OUTCOME

    monkeypatch.setattr(jobs, "materialize", materialize)
    monkeypatch.setattr(jobs, "start_session", lambda: spark)
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)
    exported: list[MaterializeJob] = []
    monkeypatch.setattr(jobs, "export", lambda _, done, __: exported.extend(done))
    options = ["-p", str(pipeline), "-e", "testing", "--target", "lake", "--output", "json", "--export", "x"]
    assert main(options) == Exit.REFUSED
    assert [job.aggregate for job in exported] == ["book"]
    printed = capsys.readouterr()
    statuses = [entry["status"] for entry in json.loads(printed.out)["materializations"]]
    assert statuses == ["failed", "changed"]
    assert "error: library.author -> lake.author: offsets do not fit\nhint: look at the topic\n" in printed.err
    assert "Traceback" not in printed.err


def test_an_unforeseen_error_does_not_keep_the_others_from_running(
    spark: SparkSession, pipeline: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def materialize(_: SparkSession, job: MaterializeJob, __: jobs.Tell, ___: int) -> Outcome:
        if job.aggregate == "author":
            json.loads("<html>")  # as a proxy in front of the registry answers
        return OUTCOME

    monkeypatch.setattr(jobs, "materialize", materialize)
    monkeypatch.setattr(jobs, "start_session", lambda: spark)
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)
    options = ["-p", str(pipeline), "-e", "testing", "--target", "lake", "--output", "json"]
    assert main(options) == 1
    printed = capsys.readouterr()
    failed, changed = json.loads(printed.out)["materializations"]
    assert (failed["status"], changed["status"]) == ("failed", "changed")
    assert failed["error"].startswith("JSONDecodeError: Expecting value")
    assert "Traceback" not in printed.err
    assert main([*options, "--debug"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_an_export_that_fails_is_told_and_does_not_keep_the_others_from_being_exported(
    spark: SparkSession, pipeline: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    exported: list[str] = []

    def export(_: SparkSession, found: Sequence[MaterializeJob], __: Path) -> None:
        (job,) = found
        if job.aggregate == "author":
            raise OSError("No space left on device")
        exported.append(job.aggregate)

    monkeypatch.setattr(jobs, "materialize", lambda *_: OUTCOME)
    monkeypatch.setattr(jobs, "export", export)
    monkeypatch.setattr(jobs, "start_session", lambda: spark)
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)
    options = ["-p", str(pipeline), "-e", "testing", "--target", "lake", "--output", "json", "--export", "x"]
    assert main(options) == Exit.FAILED
    printed = capsys.readouterr()
    failed, changed = json.loads(printed.out)["materializations"]
    assert (exported, failed["status"], changed["status"]) == (["book"], "failed", "changed")
    assert failed["error"] == "the table is up to date, but its export failed: OSError: No space left on device"
    assert failed["records"] == 5
    assert "error: export of lake.author: OSError: No space left on device\n" in printed.err
    assert "Traceback" not in printed.err


def test_a_missing_file_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-p", str(tmp_path / "none.yaml")]) == Exit.REFUSED
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: cannot read ")
    assert "Traceback" not in printed.err


def test_usage_errors_exit_with_2() -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--output", "xml"])
    assert caught.value.code == 2


def test_a_cluster_needs_spark_submit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_MASTER", "local[2]")
    assert session._own_master() == "local[2]"
    monkeypatch.setenv("SPARK_MASTER", "spark://cluster:7077")
    with pytest.raises(ConfigurationError, match="SPARK_MASTER is spark://cluster:7077") as caught:
        session._own_master()
    assert "spark-submit" in caught.value.hint


def test_missing_jars_are_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(session.JARS_VARIABLE, str(tmp_path))
    with pytest.raises(ConfigurationError, match="no jars for Spark: looked in"):
        session._own_settings()
