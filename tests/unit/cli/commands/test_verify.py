"""`outbox verify`: report files, and repeated checks until interrupted."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from outbox_events.errors import ConfigurationError
from outbox_kit import deployment as deployments
from outbox_kit import verification
from outbox_kit.cli.app import app
from outbox_kit.deployment import Deployment
from outbox_kit.operations.state_comparison import StateComparison
from outbox_kit.results.checks import Check, Severity, Status

GOOD = Check("kafka.topics", Status.PASS, "all 5", "all 5")
BAD = Check("kafka.topics", Status.FAIL, "missing: library.book", "all 5", "run `outbox apply`")
HOSTILE = Check("kafka.topics", Status.FAIL, "found \x1b[2J\nforged", "all 5", "delete \x1b[2J")


@pytest.fixture
def check_runs(deployed: Callable[..., Deployment], monkeypatch: pytest.MonkeyPatch) -> list[list[Check]]:
    """Results of each run of verify. The last result is repeated."""
    runs: list[list[Check]] = []
    deployment = deployed()
    monkeypatch.setattr(deployments, "open_deployment", lambda *_: nullcontext(deployment))
    monkeypatch.setattr(verification, "verify", lambda *_, **__: runs.pop(0) if len(runs) > 1 else runs[0])
    return runs


def test_writes_reports_when_a_check_fails(check_runs: list[list[Check]], tmp_path: Path) -> None:
    check_runs.append([BAD])
    junit, html = tmp_path / "v.xml", tmp_path / "v.html"
    done = CliRunner().invoke(app, ["verify", "--junit", str(junit), "--html", str(html)])
    assert done.exit_code == 1
    assert 'name="kafka.topics"' in junit.read_text()
    assert "missing: library.book" in html.read_text()


@pytest.mark.parametrize("option", ["--junit", "--html"])
def test_reports_an_unwritable_report_path(check_runs: list[list[Check]], tmp_path: Path, option: str) -> None:
    check_runs.append([GOOD])
    path = tmp_path / "nowhere" / "report"
    error = CliRunner().invoke(app, ["verify", option, str(path)]).exception
    assert isinstance(error, ConfigurationError)
    assert error.message == f"cannot write {path}: No such file or directory"


def test_every_prints_changes_until_interrupted(check_runs: list[list[Check]], monkeypatch: pytest.MonkeyPatch) -> None:
    check_runs += [[GOOD], [GOOD], [BAD], [BAD], [GOOD]]
    delays: list[float] = []

    def sleep(seconds: float) -> None:
        delays.append(seconds)
        if len(delays) == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    done = CliRunner().invoke(app, ["verify", "--every", "30"])
    assert done.exit_code == 0
    assert delays == [30] * 5
    lines = [line.split(" ", 1)[1] for line in done.stdout.splitlines()]
    assert lines == ["kafka.topics: pass → fail: missing: library.book", "kafka.topics: fail → pass: all 5"]
    assert done.stderr == "stopped\n"


def interrupt_after(runs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupt the command after this number of runs."""
    remaining = iter(range(runs - 1))

    def sleep(_: float) -> None:
        if next(remaining, None) is None:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)


def test_every_prints_a_json_document_per_run(check_runs: list[list[Check]], monkeypatch: pytest.MonkeyPatch) -> None:
    check_runs += [[GOOD], [BAD]]
    interrupt_after(2, monkeypatch)
    done = CliRunner().invoke(app, ["verify", "--every", "30", "--output", "json"])
    documents = [json.loads(line) for line in done.stdout.splitlines()]
    assert [document["checks"][0]["status"] for document in documents] == ["pass", "fail"]
    assert all(datetime.fromisoformat(document["time"]).tzinfo for document in documents)
    assert {(document["pipeline"], document["environment"]) for document in documents} == {("library", "fixed")}


def test_every_writes_the_reports_after_each_run(
    check_runs: list[list[Check]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    check_runs += [[BAD], [GOOD]]
    contents: list[tuple[bool, bool]] = []
    junit, html = tmp_path / "v.xml", tmp_path / "v.html"

    def sleep(_: float) -> None:
        contents.append(("missing: library.book" in junit.read_text(), "missing: library.book" in html.read_text()))
        if len(contents) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    done = CliRunner().invoke(app, ["verify", "--every", "30", "--junit", str(junit), "--html", str(html)])
    assert done.exit_code == 0
    assert contents == [(True, True), (False, False)]


def test_every_compares_states_incrementally(check_runs: list[list[Check]], monkeypatch: pytest.MonkeyPatch) -> None:
    """All runs use the same comparison object, which keeps the records that it has read."""
    check_runs.append([GOOD])
    comparisons: list[object] = []

    def verify(*_: object, states: object, **__: object) -> list[Check]:
        comparisons.append(states)
        return [GOOD]

    monkeypatch.setattr(verification, "verify", verify)
    interrupt_after(2, monkeypatch)
    CliRunner().invoke(app, ["verify", "--every", "30", "--states", "--states-timeout", "7", "--max-records", "8"])
    first, second = comparisons
    assert isinstance(first, StateComparison)
    assert first is second
    assert (first.seconds, first.max_records) == (7, 8)
    CliRunner().invoke(app, ["verify"])
    assert comparisons[2:] == [None]


def test_results_cannot_control_the_terminal(check_runs: list[list[Check]], monkeypatch: pytest.MonkeyPatch) -> None:
    check_runs += [[HOSTILE], [GOOD], [HOSTILE]]
    interrupt_after(2, monkeypatch)
    for arguments in ([], ["--every", "30"]):
        done = CliRunner().invoke(app, ["verify", *arguments])
        assert r"found \x1b[2J" in done.stdout
        assert "\x1b" not in done.output
        assert [line for line in done.output.splitlines() if line.startswith("forged")] == []


def test_every_rejects_an_interval_below_one_second(check_runs: list[list[Check]]) -> None:
    check_runs.append([GOOD])
    assert CliRunner().invoke(app, ["verify", "--every", "0"]).exit_code == 2


def test_prints_remedies_with_the_options_of_the_run(check_runs: list[list[Check]]) -> None:
    check_runs.append([BAD])
    done = CliRunner().invoke(app, ["verify", "-p", "connectors/other.yaml", "-e", "there", "--no-canary"])
    assert "run `outbox apply -p connectors/other.yaml -e there`" in done.stdout


def system_checks(system: str, count: int, status: Status, seen: str = "") -> list[Check]:
    return [Check(f"{system}.c{number}", status, seen, "") for number in range(count)]


def positions(text: str, *parts: str) -> list[int]:
    """Return the position of each part, which must occur exactly once."""
    assert [part for part in parts if text.count(part) != 1] == []
    return [text.index(part) for part in parts]


def test_prints_problems_first_and_counts_the_rest(check_runs: list[list[Check]]) -> None:
    warned = Check("kafka.lag", Status.WARN, "warned-about", "", "raise it", Severity.WARNING)
    unknown = system_checks("registry", 3, Status.UNKNOWN, "see registry.reachable")
    check_runs.append([*system_checks("postgres", 12, Status.PASS, "p4ssed"), *unknown, warned, BAD])
    done = CliRunner().invoke(app, ["verify"])
    found = positions(done.stdout, "missing: library.book", "warned-about", "see registry.reachable", "postgres: 12")
    assert found == sorted(found)
    assert "p4ssed" not in done.stdout
    verbose = CliRunner().invoke(app, ["verify", "-v"]).stdout
    assert verbose.count("p4ssed") == 12
    assert {check.id for check in check_runs[0] if check.id not in verbose} == set()


def test_prints_a_common_remedy_once_and_the_cause_before_its_consequences(check_runs: list[list[Check]]) -> None:
    consequence = Check("connect.running", Status.FAIL, "FAILED", "RUNNING", "see kafka.topics: it also restarts")
    same_remedy = Check("kafka.topic-identity", Status.FAIL, "recreated", "the same", BAD.remedy)
    check_runs.append([consequence, BAD, same_remedy])
    done = CliRunner().invoke(app, ["verify"])
    assert done.stdout.count("outbox apply") == 1
    found = positions(done.stdout, "missing: library.book", "recreated", "FAILED")
    assert found == sorted(found)
    assert "see kafka.topics\n" in done.stdout
