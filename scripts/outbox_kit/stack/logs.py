"""Log files of the services."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from pathlib import Path

from outbox_kit.stack.layout import Layout

EXCERPT_WINDOW_LINES = 2000
# Error levels of the JVM services and PostgreSQL, and the lines that begin a stack trace.
ERROR_LINE = re.compile(r"\b(?:ERROR|FATAL|PANIC)\b|^Caused by: |^Exception in thread")


def tail(path: Path, lines: int) -> list[str]:
    """Return the last lines of a file; an empty list if it does not exist."""
    try:
        with path.open(errors="replace") as file:
            return [line.rstrip("\n") for line in deque(file, maxlen=lines)]
    except FileNotFoundError:
        return []


def excerpt(path: Path, lines: int) -> list[str]:
    """Return the last lines of a log, preceded by the last error lines that precede these lines.

    The last lines alone may not show the error: a failing broker logs many lines of its shutdown after the error.
    """
    window = tail(path, EXCERPT_WINDOW_LINES)
    earlier_lines, last_lines = window[:-lines], window[-lines:]
    errors = [line for line in earlier_lines if ERROR_LINE.search(line)][-lines // 4 :]
    return [*errors, "...", *last_lines] if errors else last_lines


def rotate(layout: Layout, names: Iterable[str]) -> None:
    """Rename the logs of the previous run, so that a new log has only lines of this run."""
    for name in names:
        file = layout.log(name)
        if file.exists():
            file.replace(file.with_name(f"{name}.previous.log"))


def exit_description(layout: Layout, name: str) -> str:
    """Return how a process ended last, for example `exit status 1` or `terminated by SIGKILL`, or an empty string.

    The text is from Supervisor's log, because the XML-RPC interface has no exit status after a restart of the process.
    """
    pattern = re.compile(rf"exited: {re.escape(name)} \(([^;)]*)")
    exits = [match.group(1) for line in tail(layout.log("supervisor"), 200) if (match := pattern.search(line))]
    return exits[-1] if exits else ""


def redact(text: str, secrets: Iterable[str]) -> str:
    """Return a text with every secret replaced."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return text
