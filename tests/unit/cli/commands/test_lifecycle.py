"""Operations commands in this process: exit codes, data on stdout, messages on stderr, and payloads only in `show`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from confluent_kafka import Message
from tests.unit.cli.samples import SECRETS
from tests.unit.operations.samples import positions
from tests.unit.postgres.samples import SLOT
from typer.testing import CliRunner

from outbox_events.errors import ConfigurationError
from outbox_kit import backfill
from outbox_kit.cli.app import app
from outbox_kit.connect.client import ConnectorStatus
from outbox_kit.dead_letters.dead_letter import DeadLetter, Place
from outbox_kit.dead_letters.dead_letter_topic import DeadLetterTopic
from outbox_kit.deployment import identity
from outbox_kit.operations import lifecycle, offsets, preconditions, stuck
from outbox_kit.operations import status as pipeline_status
from outbox_kit.operations.offsets import OffsetChange, ResetResult
from outbox_kit.operations.preconditions import Deletions
from outbox_kit.operations.state_comparison import StuckAggregate
from outbox_kit.operations.status import PipelineStatus, Task

Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, workspace: Path) -> Run:
    """Run a command with the production example. Tests stub the functions that it calls, so no system is contacted."""
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(workspace)
    monkeypatch.setenv("OUTBOX_ENVIRONMENT", "production.example")
    monkeypatch.setattr(identity, "refuse_foreign_systems", lambda *_, **__: None)

    def command(*arguments: str) -> Result:
        return CliRunner().invoke(app, list(arguments))

    return command


def stub(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, value: object) -> list[dict[str, Any]]:  # noqa: ANN401
    """Replace a function with one that returns `value`. Return the list of its calls."""
    calls: list[dict[str, Any]] = []

    def stubbed(*arguments: object, **options: object) -> object:
        calls.append({"arguments": arguments[1:], **options})
        return value

    monkeypatch.setattr(module, name, stubbed)
    return calls


GOOD = PipelineStatus(
    connector="library-outbox",
    state="RUNNING",
    worker="w:1",
    tasks=[Task("RUNNING", "w:2")],
    position=1000,
    slot_name="library_outbox",
    slot=replace(SLOT, confirmed_flush=1000, restart_lsn=900),
    server=5000,
    dead_letters=2,
    actual_epoch=1,
    lock_file_epoch=1,
    pipeline="library",
    environment="production",
    database="db:5432/library",
    publication_name="library_outbox",
    retention_limit=1 << 30,
    ages={"record": 200.0, "heartbeat": 4.2, "dead_letter": 3 * 3600.0},
)
BAD = PipelineStatus(
    connector="library-outbox",
    state="RUNNING",
    cause="y.Error: why",
    problems=["slot s is not active"],
    next_steps=["run `outbox verify`"],
)


@pytest.mark.parametrize(("report", "code"), [(GOOD, 0), (BAD, 1)])
def test_status(run: Run, monkeypatch: pytest.MonkeyPatch, report: PipelineStatus, code: int) -> None:
    stub(monkeypatch, pipeline_status, "read_status", report)
    table, document = run("status"), run("status", "--output", "json")
    assert (table.exit_code, document.exit_code) == (code, code)
    steps = [step.replace("`outbox verify`", "`outbox verify -e production.example`") for step in report.next_steps]
    assert json.loads(document.stdout) == {**report.to_dict(), "next_steps": steps}
    assert document.stderr == ""
    problems = [f"problem: {message}\n" for message in report.problems]
    assert table.stderr == "".join([*problems, *(f"next step: {step}\n" for step in steps)])
    assert ("root cause" in table.stdout) == bool(report.cause)


def test_status_fits_on_one_screen(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    stub(monkeypatch, pipeline_status, "read_status", GOOD)
    result = run("status").stdout
    assert len(result.splitlines()) <= 24
    for message in ("library in environment production, database db:5432/library", "4.0 KiB", "1.0 GiB"):
        assert message in result
    for message in ("3 min ago", "4 s ago", "2 not acknowledged; newest on the topic: 3 h ago"):
        assert message in result
    for message in ("RUNNING on w:2", "active, WAL reserved", "3.9 KiB behind", "0/3E8 (1000)", "2 not acknowledged"):
        assert message in result


def test_status_of_an_unreachable_worker_is_not_that_of_a_missing_connector(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = replace(GOOD, connect_responded=False, state=None, worker="", tasks=[], problems=["no response"])
    stub(monkeypatch, pipeline_status, "read_status", report)
    rows = [line.strip().split(None, 1) for line in run("status").stdout.splitlines()]
    shown = {name: value for name, value in rows if name in ("connector", "tasks", "config")}
    assert shown["connector"].startswith("library-outbox: unknown")
    assert (shown["tasks"], shown["config"]) == ("unknown", "unknown")
    assert "LSN of connector  unknown" in run("status").stdout


@pytest.mark.parametrize(
    ("line", "function", "options"),
    [
        ("restart", "restart", {"only_failed": False}),
        ("restart --failed", "restart", {"only_failed": True}),
        ("resume", "resume", {"skip_rows": False}),
        ("resume --skip-rows", "resume", {"skip_rows": True}),
        ("pause", "pause", {}),
        ("stop", "stop", {}),
    ],
)
def test_connector_commands(
    run: Run, monkeypatch: pytest.MonkeyPatch, line: str, function: str, options: dict[str, object]
) -> None:
    calls = stub(monkeypatch, lifecycle, function, ConnectorStatus("PAUSED", ("PAUSED",), ()))
    done, document = run(*line.split()), run(*line.split(), "--output", "json")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr.startswith("connector PAUSED, tasks: PAUSED\n")
    assert ("makes the connector running" in done.stderr) == (function in ("pause", "stop"))
    assert json.loads(document.stdout) == {"connector": "PAUSED", "tasks": ["PAUSED"]}
    assert {key: value for key, value in calls[0].items() if key != "arguments"} == options


def test_offsets_show(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    stub(monkeypatch, offsets, "show", positions(1200))
    result = run("offsets", "show")
    assert "0/4B0 (1200)" in result.stdout
    assert "200 bytes of WAL are in Kafka and not yet confirmed" in result.stderr
    assert json.loads(run("offsets", "show", "--output", "json").stdout) == positions(1200).to_dict()


@pytest.mark.parametrize(
    ("line", "code", "resets"),
    [
        ("offsets reset", 1, 0),
        ("--yes offsets reset", 1, 0),
        ("offsets reset --confirm library@production", 0, 1),
        ("offsets reset --confirm library", 1, 0),
        ("offsets reset --confirm production", 1, 0),
        ("offsets reset --yes", 2, 0),
        ("offsets reset --to x", 2, 0),
    ],
)
def test_reset_requires_the_name_of_the_pipeline(
    run: Run, monkeypatch: pytest.MonkeyPatch, line: str, code: int, resets: int
) -> None:
    stub(monkeypatch, offsets, "preview", OffsetChange(1200, 1000, 1000))
    calls = stub(monkeypatch, offsets, "reset", ResetResult(Path("b.json"), 1200, 1000, 3, resumed=True))
    done = run(*line.split())
    assert (done.exit_code, len(calls), done.stdout) == (code, resets, "")


def test_reset_prints_its_effect_before_the_question(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    stub(monkeypatch, offsets, "preview", OffsetChange(1200, 1000, 1000))
    done = run("offsets", "reset")
    assert "200 bytes of WAL between 0/3E8 and 0/4B0 are sent again" in done.stderr
    assert isinstance(done.exception, ConfigurationError)
    assert "--confirm library@production" in done.exception.hint


def test_reset_as_json(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    previews = stub(monkeypatch, offsets, "preview", OffsetChange(1200, 1000, 1000))
    calls = stub(monkeypatch, offsets, "reset", ResetResult(Path("b.json"), 1200, 1000, 3, resumed=True))
    done = run(
        "offsets",
        "reset",
        "--from",
        "f.json",
        "--skip-rows",
        "--confirm",
        "library@production",
        "--output",
        "json",
    )
    assert json.loads(done.stdout) == {
        "backup": "b.json",
        "before": {"number": 1200, "text": "0/4B0"},
        "after": {"number": 1000, "text": "0/3E8"},
        "rows": 3,
        "resumed": True,
    }
    assert previews[0]["arguments"] == (Path("f.json"),)
    assert calls[0]["arguments"][0] == Path("f.json")
    assert (previews[0]["skip"], calls[0]["skip"]) == (True, True)


LETTER = DeadLetter(
    Place(0, 7),
    datetime(2026, 11, 20, tzinfo=UTC),
    "book",
    "k",
    "e",
    "payload-invalid",
    "why",
    record=Message(value=b'{"payload": {"a": 1}}'),
)


def test_lists_dead_letters(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = stub(monkeypatch, DeadLetterTopic, "read", [LETTER])
    result = run("dead-letter", "list")
    assert result.stdout.split()[7:9] == ["0/7", "2026-11-20T00:00:00+00:00"]
    assert result.stderr == "1 dead letter not acknowledged\n"
    document = run("dead-letter", "list", "--all", "--output", "json")
    assert json.loads(document.stdout) == {"dead_letters": [LETTER.to_dict()]}
    assert [call["list_all"] for call in calls] == [False, True]


def test_shows_one_dead_letter_with_its_row(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = stub(monkeypatch, DeadLetterTopic, "read_one", LETTER)
    assert json.loads(run("dead-letter", "show", "0/7").stdout)["row"] == {"payload": {"a": 1}}
    assert calls[0]["arguments"][-1] == Place(0, 7)
    stub(monkeypatch, DeadLetterTopic, "read_one", replace(LETTER, record=Message(value=b"no JSON")))
    assert json.loads(run("dead-letter", "show", "0/7").stdout)["row"] == "no JSON"


@pytest.mark.parametrize(
    ("line", "code", "upto"),
    [
        ("--all --yes", 0, [Place(1, 3), Place(0, 7)]),
        ("--to 0/7", 0, [Place(0, 7)]),
        ("", 2, []),
        ("--all --to 0/7", 2, []),
        ("--to 7", 2, []),
    ],
)
def test_acknowledge(run: Run, monkeypatch: pytest.MonkeyPatch, line: str, code: int, upto: list[Place]) -> None:
    """--all ends at the dead letters that were counted. Later dead letters are not acknowledged."""
    dead_letters = [replace(LETTER, place=place) for place in (Place(0, 5), Place(1, 3), Place(0, 7))]
    stub(monkeypatch, DeadLetterTopic, "read", dead_letters)
    stub(monkeypatch, DeadLetterTopic, "removed_offsets", {Place(1, 2): 1})
    calls = stub(monkeypatch, DeadLetterTopic, "acknowledge", 2)
    done = run("dead-letter", "acknowledge", *line.split())
    assert done.exit_code == code
    assert [call["arguments"][-1] for call in calls] == upto
    assert code or done.stderr == f"{2 * len(upto)} dead letters acknowledged\n"


def test_acknowledge_of_all_dead_letters_requires_confirmation(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    stub(monkeypatch, DeadLetterTopic, "read", [LETTER])
    stub(monkeypatch, DeadLetterTopic, "removed_offsets", {})
    calls = stub(monkeypatch, DeadLetterTopic, "acknowledge", 1)
    done = run("dead-letter", "acknowledge", "--all")
    assert isinstance(done.exception, ConfigurationError)
    assert "--yes" in done.exception.message
    assert calls == []


STUCK = [StuckAggregate("book", "k", "missing", "e", "2026-11-20T00:00:00+00:00")]


@pytest.mark.parametrize(
    ("line", "aggregates", "resent", "code"),
    [
        ("stuck", [], 0, 0),
        ("stuck", STUCK, 0, 1),
        ("stuck --resend", STUCK, 1, 0),
        ("stuck --resend", STUCK, 0, 1),
        ("stuck --resend", [], 0, 0),
        ("stuck --resend --max-deletions many", [], 0, 2),
        ("stuck --older-than 0", [], 0, 2),
    ],
)
def test_stuck(
    run: Run, monkeypatch: pytest.MonkeyPatch, line: str, aggregates: list[StuckAggregate], resent: int, code: int
) -> None:
    stub(monkeypatch, stuck, "list_stuck", aggregates)
    stub(monkeypatch, preconditions, "read_deletions", None)
    calls = stub(monkeypatch, stuck, "resend", resent)
    done, document = run(*line.split()), run(*line.split(), "--output", "json")
    assert (done.exit_code, document.exit_code) == (code, code)
    assert len(calls) == (2 if "--resend" in line and code < 2 else 0)
    assert ("no record on the topic" in done.stdout) == bool(aggregates)
    if code < 2:
        entries = [{**vars(entry), "fields": [], "partitions": []} for entry in aggregates]
        assert json.loads(document.stdout) == {"stuck": entries, "resent": resent}


GHOSTS = Deletions("book", ("a", "b"), "library.book", 2, 100, "library.book", table_is_empty=False)


@pytest.mark.parametrize("line", ["stuck --resend", "republish book --key a --key b --tombstones"])
@pytest.mark.parametrize(
    ("deletions", "options", "written"),
    [
        (GHOSTS, "", False),
        (GHOSTS, "--yes", True),
        (GHOSTS, "--yes --max-deletions 1%", False),
        (GHOSTS, "--yes --max-deletions 1", False),
        (replace(GHOSTS, topic_states=10), "--yes", False),
        (replace(GHOSTS, topic_states=10), "--yes --max-deletions 20%", True),
        (replace(GHOSTS, topic_states=10), "--yes --max-deletions 2", True),
        (replace(GHOSTS, table_is_empty=True), "--yes", False),
        (replace(GHOSTS, table_is_empty=True), "--yes --max-deletions 100%", False),
        (replace(GHOSTS, table_is_empty=True), "--yes --max-deletions 2", True),
        (replace(GHOSTS, table_is_empty=True), "--max-deletions 2", False),
    ],
)
def test_tombstones_are_confirmed_and_limited(
    run: Run, monkeypatch: pytest.MonkeyPatch, line: str, deletions: Deletions, options: str, written: bool
) -> None:
    stub(monkeypatch, stuck, "list_stuck", [StuckAggregate("book", key, "ghost") for key in "ab"])
    stub(monkeypatch, preconditions, "read_deletions", deletions)
    calls = stub(monkeypatch, backfill, "republish", 2)
    done = run(*line.split(), *options.split())
    assert [call["tombstones"] for call in calls] == ([("a", "b")] if written else [])
    assert done.exit_code == (0 if written else 1)
    printed = done.stderr + str(done.exception)
    assert "2 tombstones for book" in printed
    assert "keys: a, b" in printed
    assert f"2 of {deletions.topic_states} states" in printed
