"""Read and rotate the log files of the services."""

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
    """Return the last lines of a file, or an empty list if the file does not exist."""
    try:
        with path.open(errors="replace") as file:
            return [line.rstrip("\n") for line in deque(file, maxlen=lines)]
    except FileNotFoundError:
        return []


def excerpt(path: Path, lines: int) -> list[str]:
    """Return the most recent error lines of a log, followed by its last lines.

    The last lines alone might not show the error, because a failing broker logs many shutdown lines after it.
    """
    window = tail(path, EXCERPT_WINDOW_LINES)
    earlier_lines, last_lines = window[:-lines], window[-lines:]
    errors = [line for line in earlier_lines if ERROR_LINE.search(line)][-lines // 4 :]
    return [*errors, "...", *last_lines] if errors else last_lines


def rotate(layout: Layout, names: Iterable[str]) -> None:
    """Rename the logs of the previous run, so that each new log contains only lines of the current run."""
    for name in names:
        file = layout.log(name)
        if file.exists():
            file.replace(file.with_name(f"{name}.previous.log"))


def exit_description(layout: Layout, name: str) -> str:
    """Return how a process last ended, for example `exit status 1` or `terminated by SIGKILL`, or an empty string.

    The text comes from Supervisor's log, because the XML-RPC interface loses the exit status when a process restarts.
    """
    pattern = re.compile(rf"exited: {re.escape(name)} \(([^;)]*)")
    exits = [match.group(1) for line in tail(layout.log("supervisor"), 200) if (match := pattern.search(line))]
    return exits[-1] if exits else ""


def redact(text: str, secrets: Iterable[str]) -> str:
    """Return the text with every secret replaced by `***`."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return text
