"""Options that select the files, and the environment variables that can replace them."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from tests.spark.job_files import job, pipeline

from outbox_spark.commands.materialize import main
from outbox_spark.commands.options import command_parser, options_of, selected_jobs
from outbox_spark.jobs import job_file

__all__ = ["pipeline"]  # the fixture


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTBOX_PIPELINE", "shop.yaml")
    monkeypatch.setenv("OUTBOX_ENVIRONMENT", "testing")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [([], ("shop.yaml", "testing")), (["-p", "a.yaml"], ("a.yaml", "testing")), (["-e", "b"], ("shop.yaml", "b"))],
)
def test_variables_select_the_files_that_no_option_selects(arguments: list[str], expected: tuple[str, str]) -> None:
    options = command_parser("outbox-materialize", "").parse_args(arguments)
    assert (str(options.pipeline), options.environment) == expected


@pytest.mark.parametrize("value", ["", None])
def test_default_files_without_variables(pipeline: Path, monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.chdir(pipeline.parent.parent)
    for name in ("OUTBOX_PIPELINE", "OUTBOX_ENVIRONMENT"):
        monkeypatch.delenv(name) if value is None else monkeypatch.setenv(name, value)
    options = command_parser("outbox-materialize", "").parse_args([])
    assert (options.pipeline, options.environment) == (None, "local")
    options.environment = "testing"
    assert {entry.aggregate for entry in selected_jobs(options)} == {"author", "book"}


def test_exits_with_2_unless_a_pipeline_and_a_target_are_selected(
    pipeline: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(pipeline.parent.parent)
    monkeypatch.delenv("OUTBOX_PIPELINE")
    assert main(["--target", "lak", "--dry-run"]) == 2
    assert "no aggregate or target lak" in capsys.readouterr().err
    (pipeline.parent / "store.yaml").touch()
    assert main(["--dry-run"]) == 2
    assert "connectors/library.yaml, connectors/store.yaml" in capsys.readouterr().err


def test_reads_the_files_of_the_variables(pipeline: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTBOX_PIPELINE", str(pipeline))
    options = command_parser("outbox-materialize", "").parse_args(["--aggregate", "book", "--target", "warehouse"])
    assert [entry.kafka["bootstrap.servers"] for entry in selected_jobs(options)] == ["broker:9092"]


def test_a_job_file_replaces_the_files_of_the_variables(tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text(job_file.as_text([job()]))
    options = command_parser("outbox-materialize", "").parse_args(["--job", str(file)])
    assert [entry.aggregate for entry in selected_jobs(options)] == ["book"]


def test_selects_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, jobs = tmp_path / "job.json", [job(table="book"), job(table="book_history")]
    file.write_text(job_file.as_text(jobs))
    arguments = ["--job", str(file), *shlex.split(options_of(jobs[1]))]
    options = command_parser("outbox-materialize", "").parse_args(arguments)
    assert [entry.table for entry in selected_jobs(options)] == ["book_history"]
    assert main(["--job", str(file), "--table", "boks", "--dry-run"]) == 2
    assert "boks" in capsys.readouterr().err
