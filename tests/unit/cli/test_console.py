"""Messages go to stderr and data to stdout, both unchanged except for control characters."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys

import pytest
from rich.console import Console

from outbox_events.errors import OutboxError
from outbox_kit.cli import console
from outbox_kit.results.changes import Change


def run(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run in a separate process, because consoles bind to the streams of their process."""
    return subprocess.run(
        [sys.executable, "-c", f"from outbox_kit.cli.console import *\n{code}"],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


UNUSUAL_TEXTS = [
    "plain",
    "a [bold]b[/] c",
    "[/x]",
    r"\[bold] and \[/x]",
    "ends with a backslash \\",
    "topic:key:value :books:",
    "http://127.0.0.1:8083/connectors",
    "ä✓ 'quoted' \"twice\"",
    "x" * 500,
]


def test_prints_text_unchanged() -> None:
    code = f"for text in {UNUSUAL_TEXTS!r}:\n    print_message(text)\n    print_error(OutboxError(text, text))\n"
    code += "print_error(OutboxError('no'))\n"
    done = run(code)
    expected = [line for text in UNUSUAL_TEXTS for line in (text, f"error: {text}", f"hint:  {text}")]
    assert done.stderr.splitlines() == [*expected, "error: no"]
    assert done.stdout == ""


def test_prints_one_json_document(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_json({"a": ["ä", None, 1]})
    out, err = capsys.readouterr()
    assert json.loads(out) == {"a": ["ä", None, 1]}
    assert err == ""


@pytest.mark.parametrize("text", UNUSUAL_TEXTS, ids=lambda text: str(text)[:20])
def test_table_does_not_truncate_values(capsys: pytest.CaptureFixture[str], text: str) -> None:
    console.print_table(["check", "seen"], [["a.b", text]], title="title")
    out, err = capsys.readouterr()
    lines = [line.rstrip() for line in out.splitlines()]
    assert [line.split(maxsplit=1) for line in lines] == [["title"], ["check", "seen"], ["a.b", text]]
    assert err == ""


def test_prints_the_traceback_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise OutboxError("no")
    except OutboxError as error:
        console.print_traceback(error)
    out, err = capsys.readouterr()
    assert err.startswith("Traceback (most recent call last):")
    assert err.endswith("OutboxError: no\n")
    assert out == ""


HOSTILE = "\x1b[2J\x1b]0;title\x07 \x9b31m a\rb \u202egnp \u2066 \ud800 \x00 a ##[error]b #[c] ##d"
ESCAPED = r"\x1b[2J\x1b]0;title\x07 \x9b31m a\rb \u202egnp \u2066 \ud800 \x00 a \x23#[error]b #[c] ##d"


def test_escapes_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_message(f"{HOSTILE}\nerror: forged")
    console.print_error(OutboxError(f"{HOSTILE}\nsecond line", HOSTILE))
    console.print_traceback(OutboxError(HOSTILE))
    console.print_text(HOSTILE)
    console.print_table(["key"], [[HOSTILE]])
    out, err = capsys.readouterr()
    assert err.splitlines() == [
        rf"{ESCAPED}\nerror: forged",
        f"error: {ESCAPED}",
        "       second line",
        f"hint:  {ESCAPED}",
        f"outbox_events.errors.OutboxError: {ESCAPED}",
    ]
    assert [line.rstrip() for line in out.splitlines()] == [ESCAPED, "key", ESCAPED]


def test_json_stays_exact(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_json({"key": f"{HOSTILE}\x7f"})
    assert json.loads(capsys.readouterr().out) == {"key": f"{HOSTILE}\x7f"}


# --- Terminals

COLUMNS = ("place", "time", "key", "event_id", "message")
CELLS = (
    "0/1234567890",
    "2026-11-28T15:00:00.123456+00:00",
    "b7c0ffee-0000-4000-8000-000000000001",
    "0193e5d0-7c11-7aaa-bbbb-cccccccccccc",
    "the field published_at of /a/long/path/without-any-spaces/book.avsc cannot be converted to timestamp-micros",
)
CHANGE = "producer.override.max.request.size=1065536"
TASK = "outbox backfill --restart -p connectors/library.yaml -e production --set=pipeline.aggregates.book.partitions=4"


def terminal(width: int) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, highlight=False, color_system=None)


def text_of(terminal: Console) -> str:
    assert isinstance(terminal.file, io.StringIO)
    return re.sub(r"\x1b\[[\d;]*m", "", terminal.file.getvalue())


@pytest.mark.parametrize("width", [20, 80, 120, 400])
def test_a_table_on_a_terminal_does_not_break_words(width: int) -> None:
    shown = terminal(width)
    console.print_table(COLUMNS, [CELLS, CELLS], console=shown)
    words = text_of(shown).split()
    assert [word for cell in CELLS for word in cell.split() if words.count(word) != 2] == []


def test_a_table_is_printed_as_blocks_only_if_it_does_not_fit() -> None:
    narrow, wide, pipe = terminal(80), terminal(400), Console(file=io.StringIO(), width=80)
    for shown in (narrow, wide, pipe):
        console.print_table(COLUMNS, [CELLS, CELLS], console=shown)
    assert [len(text_of(shown).splitlines()) > 3 for shown in (narrow, wide, pipe)] == [True, False, False]
    assert max(map(len, text_of(narrow).splitlines())) <= 80


def test_a_table_of_properties_has_a_line_per_property() -> None:
    shown = terminal(40)
    console.print_table(["property", "value"], [["slot", "library_outbox"], ["connector", "x " * 30]], console=shown)
    assert [line.split()[:2] for line in text_of(shown).splitlines()][:2] == [
        ["slot:", "library_outbox"],
        ["connector:", "x"],
    ]


def test_changes_on_a_terminal_keep_their_settings_whole() -> None:
    shown = terminal(80)
    change = Change("connect", "connector", "c", "update", "restarts the task", f"{CHANGE}1", f"{CHANGE}2")
    console.print_changes([change], console=shown)
    assert {f"{CHANGE}1", f"{CHANGE}2"} <= set(text_of(shown).split())


def test_a_long_text_has_its_commands_on_lines_of_their_own() -> None:
    shown = terminal(80)
    text = f"check the topic; then run `{TASK}`, then `outbox stuck --resend` (see `outbox status`), or read docs/x.md"
    lines = [line.strip() for line in console.wrapped(text, shown, 10).splitlines()]
    assert {TASK, "outbox stuck --resend"} <= set(lines)
    assert [line for line in lines if len(line) > 70] == [TASK]
    assert console.wrapped(text, Console(file=io.StringIO(), width=80), 10) == text
    assert console.wrapped("run `outbox apply`", shown, 10) == "run `outbox apply`"


CHECKS = """
from outbox_kit.cli.checks_output import print_checks
from outbox_kit.results.checks import Check, Status
print_checks([Check(f"a.{status}", status, "s", "e", "r") for status in Status], "")
"""


def test_a_terminal_shows_statuses_in_color_unless_disabled() -> None:
    variables = {"FORCE_COLOR": "1", "TERM": "xterm-256color"}
    colored = run(CHECKS, **variables, NO_COLOR="").stdout
    assert [
        name for name, code in {"pass": "32", "fail": "1;31", "warn": "33"}.items() if f"{code}m{name}" not in colored
    ] == []
    assert not re.search(r"\x1b\[[\d;]*3\d", run(CHECKS, **variables, NO_COLOR="1").stdout)
    assert "\x1b" not in run(CHECKS, FORCE_COLOR="", NO_COLOR="").stdout
