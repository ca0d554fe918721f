"""Command line: stdout, stderr and exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.job_files import pipeline

from outbox_events.errors import RefusedError
from outbox_spark.commands import dry_run, run_each
from outbox_spark.commands import materialize as jobs
from outbox_spark.commands.dry_run import PlannedReads
from outbox_spark.commands.exit_codes import Exit
from outbox_spark.commands.materialize import main
from outbox_spark.jobs.model import MaterializeJob, Outcome, ReadRange, Reporter, Status
from outbox_spark.kafka.offset_ranges import ClusterUnreachableError
from outbox_spark.session.spark_session import FEW_RECORDS

__all__ = ["pipeline"]  # the fixture

OUTCOME = Outcome(
    "book", "library.book", "lake", "book", Status.CHANGED, 5, 4, 2, 1, 1, 0, 1, 1.5, {0: 0, 1: 2}, {0: 3, 1: 4}
)
EMPTY = ReadRange("library.book", "id-1", 0, {0: 5}, {0: 5})


Attempt = Callable[[MaterializeJob, Reporter], Outcome]


@pytest.fixture
def run_command_with(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Callable[[Attempt], None]:
    """Run the command with a fake run of a table."""

    def use(attempt: Attempt) -> None:
        def materialize(_: SparkSession, job: MaterializeJob, report: Reporter, *__: object, **___: object) -> Outcome:
            return attempt(job, report)

        monkeypatch.setattr(dry_run, "planned_reads", lambda _: PlannedReads())
        monkeypatch.setattr(jobs, "materialize", materialize)
        monkeypatch.setattr(run_each, "start_session", lambda _, **__: spark)
        monkeypatch.setattr(SparkSession, "stop", lambda _: None)

    return use


def test_json_on_stdout_and_messages_on_stderr(
    pipeline: Path, run_command_with: Callable[[Attempt], None], capsys: pytest.CaptureFixture[str]
) -> None:
    def attempt(job: MaterializeJob, report: Reporter) -> Outcome:
        report(f"at {job}")
        return OUTCOME

    run_command_with(attempt)
    options = ["-p", str(pipeline), "-e", "testing", "--target", "lake", "--aggregate", "book"]
    assert main([*options, "--output", "json"]) == 0
    printed = capsys.readouterr()
    assert printed.err == "starting Spark\nat library.book -> lake.book\n"
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
    assert main(options) == 0
    table = capsys.readouterr().out.splitlines()
    assert table[0].split()[:4] == ["aggregate", "target", "table", "status"]
    assert table[1].split()[:6] == ["book", "lake", "book", "changed", "5", "4"]


def test_continues_after_a_failed_job(
    pipeline: Path,
    run_command_with: Callable[[Attempt], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def attempt(job: MaterializeJob, _: Reporter) -> Outcome:
        if job.aggregate == "author":
            raise RefusedError("offsets do not fit", "look at the topic")
        return OUTCOME

    run_command_with(attempt)
    exported: list[MaterializeJob] = []
    monkeypatch.setattr(jobs, "export", lambda _, job, *__: exported.append(job))
    options = ["-p", str(pipeline), "-e", "testing", "--target", "lake", "--output", "json", "--export", "x"]
    assert main(options) == Exit.REFUSED
    assert [job.aggregate for job in exported] == ["book"]
    printed = capsys.readouterr()
    statuses = [entry["status"] for entry in json.loads(printed.out)["materializations"]]
    assert statuses == ["failed", "changed"]
    assert "error: library.author -> lake.author: offsets do not fit\nhint: look at the topic\n" in printed.err
    assert "Traceback" not in printed.err


def test_continues_after_an_unexpected_error(
    pipeline: Path, run_command_with: Callable[[Attempt], None], capsys: pytest.CaptureFixture[str]
) -> None:
    def attempt(job: MaterializeJob, _: Reporter) -> Outcome:
        if job.aggregate == "author":
            json.loads("<html>")  # the response of a proxy in front of the registry
        return OUTCOME

    run_command_with(attempt)
    options = ["-p", str(pipeline), "-e", "testing", "--target", "lake", "--output", "json"]
    assert main(options) == 1
    printed = capsys.readouterr()
    failed, changed = json.loads(printed.out)["materializations"]
    assert (failed["status"], changed["status"]) == ("failed", "changed")
    assert failed["error"].startswith("JSONDecodeError: Expecting value")
    assert "Traceback" not in printed.err
    assert main([*options, "--debug"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_does_not_start_spark_if_no_table_would_change(
    pipeline: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        dry_run, "planned_reads", lambda selected: PlannedReads(dict.fromkeys(range(len(selected)), EMPTY))
    )
    monkeypatch.setattr(run_each, "start_session", pytest.fail)
    metrics = tmp_path / "metrics.jsonl"
    options = ["-p", str(pipeline), "-e", "testing", "--target", "lake", "--output", "json"]
    assert main([*options, "--metrics", str(metrics)]) == Exit.DONE
    printed = capsys.readouterr()
    assert printed.err.splitlines() == [
        "library.author -> lake.author: nothing new",
        "library.book -> lake.book: nothing new",
    ]
    results = json.loads(printed.out)["materializations"]
    assert [(result["status"], result["offsets"]["to"]) for result in results] == [("unchanged", {"0": 5})] * 2
    assert [json.loads(line)["status"] for line in metrics.read_text().splitlines()] == ["unchanged"] * 2


def test_runs_only_the_tables_that_may_change(
    pipeline: Path,
    run_command_with: Callable[[Attempt], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run_command_with(lambda job, _: replace(OUTCOME, aggregate=job.aggregate))
    monkeypatch.setattr(dry_run, "planned_reads", lambda _: PlannedReads({0: EMPTY}))
    options = ["-p", str(pipeline), "-e", "testing", "--target", "lake", "--output", "json"]
    assert main(options) == Exit.DONE
    results = json.loads(capsys.readouterr().out)["materializations"]
    assert [(result["aggregate"], result["status"]) for result in results] == [
        ("author", "unchanged"),
        ("book", "changed"),
    ]


def test_does_not_start_spark_if_no_broker_responds(
    pipeline: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error = ClusterUnreachableError("Kafka at localhost:1: no response", "make sure that the broker is running")
    monkeypatch.setattr(dry_run, "planned_reads", lambda _: PlannedReads({0: EMPTY}, {1: error}))
    monkeypatch.setattr(run_each, "start_session", pytest.fail)
    metrics = tmp_path / "metrics.jsonl"
    options = ["-p", str(pipeline), "-e", "testing", "--target", "lake", "--output", "json"]
    assert main([*options, "--metrics", str(metrics)]) == Exit.FAILED
    printed = capsys.readouterr()
    assert "error: library.book -> lake.book: Kafka at localhost:1: no response" in printed.err
    results = json.loads(printed.out)["materializations"]
    assert [(result["aggregate"], result["status"]) for result in results] == [
        ("author", "unchanged"),
        ("book", "failed"),
    ]
    assert sorted(json.loads(line)["status"] for line in metrics.read_text().splitlines()) == ["failed", "unchanged"]


@pytest.mark.parametrize(
    ("planned", "few_records"),
    [
        (PlannedReads(max_offsets=FEW_RECORDS, is_complete=True), True),
        (PlannedReads(max_offsets=FEW_RECORDS + 1, is_complete=True), False),
        (PlannedReads(), False),
    ],
)
def test_compiles_less_for_few_records(
    spark: SparkSession,
    pipeline: Path,
    monkeypatch: pytest.MonkeyPatch,
    run_command_with: Callable[[Attempt], None],
    planned: PlannedReads,
    few_records: bool,
) -> None:
    started: list[bool] = []

    def start(_: str, *, few_records: bool, fair_scheduling: bool) -> SparkSession:  # noqa: ARG001
        started.append(few_records)
        return spark

    run_command_with(lambda *_: OUTCOME)
    monkeypatch.setattr(run_each, "start_session", start)
    monkeypatch.setattr(dry_run, "planned_reads", lambda _: planned)
    assert main(["-p", str(pipeline), "-e", "testing", "--target", "lake"]) == Exit.DONE
    assert started == [few_records]


def test_reports_a_failed_export_and_exports_the_rest(
    spark: SparkSession, pipeline: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    exported: list[str] = []

    def export(_: SparkSession, job: MaterializeJob, *__: object) -> None:
        if job.aggregate == "author":
            raise OSError("No space left on device")
        exported.append(job.aggregate)

    monkeypatch.setattr(jobs, "materialize", lambda *_, **__: OUTCOME)
    monkeypatch.setattr(jobs, "export", export)
    monkeypatch.setattr(run_each, "start_session", lambda _, **__: spark)
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


def test_refuses_a_file_that_loads_a_library(pipeline: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = pipeline.parent / "environments/testing.yaml"
    file.write_text(file.read_text().replace("security.protocol: SSL", "plugin.library.paths: /tmp/x.so"))
    assert main(["-p", str(pipeline), "-e", "testing"]) == Exit.REFUSED
    assert "plugin.library.paths" in capsys.readouterr().err


def test_reports_a_missing_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-p", str(tmp_path / "none.yaml")]) == Exit.REFUSED
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: cannot read ")
    assert "Traceback" not in printed.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--output", "xml"], "invalid choice"),
        (["--interval", "0"], "greater than 0"),
        (["--interval", "nan"], "greater than 0"),
        (["--batch-records", "0"], "at least 1"),
        (["--threads", "0"], "at least 1"),
        (["--fail-fast"], "need --interval"),
        (["--max-failures", "3"], "need --interval"),
        (["--interval", "5", "--dry-run"], "not allowed with"),
        (["--interval", "5", "--export", "x"], "not allowed with"),
        (["--export-format", "parquet"], "--export-format needs --export"),
        (["--export", "x", "--export-format", "csv"], "invalid"),
        (["--interval", "5", "--replay-from", "beginning"], "not allowed with --interval"),
        (["--dry-run", "--replay-from", "beginning"], "not allowed with --dry-run"),
        (["--job", "a.json", "-p", "b.yaml"], "not allowed with"),
        (["--job", "a.json", "--write-job", "b.json"], "not allowed with"),
    ],
)
def test_usage_errors_exit_with_2(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(options)
    assert caught.value.code == Exit.USAGE
    assert message in capsys.readouterr().err


def test_threads_need_sessions_of_their_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYSPARK_PIN_THREAD", "false")
    with pytest.raises(SystemExit):
        main(["--threads", "2"])
    assert "PYSPARK_PIN_THREAD" in capsys.readouterr().err


def test_help_lists_every_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    messages = capsys.readouterr().out.partition("exit codes:\n")[2].splitlines()
    assert [line.split()[0] for line in messages] == [f"{code:d}" for code in Exit]
