"""Messages go to stderr and data to stdout, both unchanged except for control characters."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from outbox_events.errors import OutboxError
from outbox_kit.cli import console


def run(code: str) -> subprocess.CompletedProcess[str]:
    """Run in a separate process, because consoles bind to the streams of their process."""
    return subprocess.run(
        [sys.executable, "-c", f"from outbox_kit.cli.console import *\n{code}"],
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
        "second line",
        f"hint:  {ESCAPED}",
        f"outbox_events.errors.OutboxError: {ESCAPED}",
    ]
    assert [line.rstrip() for line in out.splitlines()] == [ESCAPED, "key", ESCAPED]


def test_json_stays_exact(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_json({"key": f"{HOSTILE}\x7f"})
    assert json.loads(capsys.readouterr().out) == {"key": f"{HOSTILE}\x7f"}
