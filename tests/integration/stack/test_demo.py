"""The worked example as `make demo` runs it, with Connect killed during the workload."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.conftest import make_project

from outbox_kit.demo.report import DemoReport
from outbox_kit.demo.run import Demo
from outbox_kit.deployment import Deployment
from outbox_kit.results import silent
from outbox_kit.stack import Stack, StackState

DEMO_SECONDS = 240
TRANSACTIONS = 4000


def run_demo(project: Path, stack: Stack) -> tuple[int, str]:
    """Run `outbox demo` on the running stack, and kill Connect as soon as the workload has begun."""
    command = [sys.executable, "-c", "from outbox_kit.cli import main; main()"]
    command += ["-p", str(project / "connectors" / "library.yaml"), "demo"]
    command += ["--transactions", str(TRANSACTIONS)]
    with subprocess.Popen(command, cwd=project, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as demo:
        assert demo.stderr is not None
        lines: list[str] = []
        killed = 0
        for line in demo.stderr:
            lines.append(line)
            if "transactions" in line and not killed and not line.startswith("0 "):
                pid = stack.pid("connect")
                assert pid is not None
                os.kill(pid, signal.SIGKILL)
                killed = pid
        demo.wait(timeout=DEMO_SECONDS)
    message = "".join(lines)
    assert killed, message
    assert stack.pid("connect") != killed
    return demo.returncode, message


@pytest.fixture(scope="module")
def result(project: Path, stack: Stack) -> dict[str, Any]:
    """Return result.json of one run in which Connect was killed with SIGKILL during the workload."""
    code, message = run_demo(project, stack)
    assert code == 0, message
    actual = json.loads((project / "build" / "demo" / "result.json").read_text())
    assert isinstance(actual, dict)
    return actual


def test_rows_of_both_targets_equal_the_source(result: dict[str, Any]) -> None:
    assert result["match"] is True
    assert [(item["target"], item["aggregate"], item["match"]) for item in result["comparisons"]] == [
        ("warehouse", "author", True),
        ("warehouse", "book", True),
        ("lake", "author", True),
        ("lake", "book", True),
    ]
    assert all(item["source_rows"] > 100 for item in result["comparisons"])


def test_does_not_stop_a_stack_that_it_did_not_start(result: dict[str, Any], state: StackState, stack: Stack) -> None:
    del result
    assert stack.state() == state


def test_reports_the_counts(result: dict[str, Any]) -> None:
    workload = result["workload"]
    assert workload["transactions"] == TRANSACTIONS
    assert workload["rolled_back"] > 0
    assert workload["events"] > workload["tombstones"] > 0
    assert result["dead_letters"] == result["dead_letters_expected"] == 2


def test_dead_letters_of_the_demo_do_not_fail_verify(result: dict[str, Any], library: Deployment) -> None:
    del result
    assert library.dead_letters().count() == 0


@pytest.mark.parametrize(
    ("statement", "difference"),
    [
        (
            "update book set title = title || '!' where aggregate_id = (select min(aggregate_id) from book)",
            "different",
        ),
        ("delete from book where aggregate_id = (select min(aggregate_id) from book)", "missing"),
    ],
)
def test_detects_a_corrupted_target_row(
    result: dict[str, Any], project: Path, state: StackState, statement: str, difference: str
) -> None:
    del result
    report = DemoReport()
    demo = Demo(project / "connectors" / "library.yaml", 1, 1, silent)
    with psycopg.connect(state.target) as connection:
        connection.execute("create table book_copy as table book")
        connection.execute(statement)
        connection.commit()
        try:
            demo.compare(report, state)
        finally:
            connection.execute("truncate book")
            connection.execute("insert into book table book_copy")
            connection.execute("drop table book_copy")
    assert report.match is False
    actual = next(item for item in report.comparisons if (item.target, item.aggregate) == ("warehouse", "book"))
    assert getattr(actual, f"{difference}_count") == 1
    assert replace(report, comparisons=[]).match is False


def test_interrupted_demo_cleans_up(tmp_path: Path) -> None:
    """After Ctrl-C during the start of the stack, the exit code is 130 and no processes remain."""
    project = make_project(tmp_path / "interrupted")
    # Shells start background processes, such as `make test &`, with SIGINT ignored.
    program = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    program += "from outbox_kit.cli import main; main()"
    command = [sys.executable, "-c", program, "-p", str(project / "connectors" / "library.yaml"), "demo"]
    with subprocess.Popen(command, cwd=project, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as demo:
        assert demo.stderr is not None
        lines = []
        for line in demo.stderr:
            lines.append(line)
            if line.startswith("postgres is ready"):
                demo.send_signal(signal.SIGINT)
        demo.wait(timeout=DEMO_SECONDS)
    assert demo.returncode == 130, "".join(lines)
    stack = Stack(project)
    assert stack.status() == []
    assert not (project / "build" / "demo" / "result.json").exists()
    stack.down(purge=True)
