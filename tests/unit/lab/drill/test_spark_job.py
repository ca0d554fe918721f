"""Processes in which the Spark job runs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from outbox_events.errors import OutboxError
from outbox_lab.drill import spark_job
from outbox_lab.drill.project import DrillProject
from outbox_lab.drill.spark_job import SparkJob

FILE = Path("cell.yaml")


def start_with(monkeypatch: pytest.MonkeyPatch, *codes: int | Exception | None) -> list[MagicMock]:
    """Return the processes that are started from now on. Their runs have these outcomes in turn: None is no answer."""
    processes: list[MagicMock] = []
    connection = MagicMock()
    connection.poll.side_effect = [code is not None for code in codes]
    connection.recv.side_effect = [code for code in codes if code is not None]

    def create(**_: object) -> MagicMock:
        processes.append(MagicMock())
        return processes[-1]

    monkeypatch.setattr(spark_job, "SPAWN", SimpleNamespace(Pipe=lambda: (connection, MagicMock()), Process=create))
    return processes


def ended(processes: list[MagicMock]) -> list[bool]:
    return [process.kill.called for process in processes]


def test_all_runs_use_one_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    processes = start_with(monkeypatch, 0, 0)
    with SparkJob(DrillProject(tmp_path)) as job:
        job.run(FILE)
        job.run(FILE)
        assert ended(processes) == [False]
    assert ended(processes) == [True]


@pytest.mark.parametrize("failure", [1, EOFError()])
def test_a_failed_run_is_repeated_in_a_new_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, failure: int | Exception
) -> None:
    processes = start_with(monkeypatch, failure, 0)
    with SparkJob(DrillProject(tmp_path)) as job:
        job.run(FILE)
        assert ended(processes) == [True, False]


@pytest.mark.parametrize("outcomes", [(1, 4, 1), (None,)])
def test_a_job_that_keeps_failing_leaves_no_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, outcomes: tuple[int | None, ...]
) -> None:
    processes = start_with(monkeypatch, *outcomes)
    with SparkJob(DrillProject(tmp_path)) as job, pytest.raises(OutboxError):
        job.run(FILE)
    assert ended(processes) == [True] * len(outcomes)
