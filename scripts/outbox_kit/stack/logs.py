"""The log files of the parts."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from pathlib import Path

from outbox_kit.stack.layout import Layout

EXCERPT_WINDOW = 2000
# Log levels of the JVM parts and of PostgreSQL, and the line that names what a stack trace is about.
ERROR = re.compile(r"\b(?:ERROR|FATAL|PANIC)\b|^Caused by: |^Exception in thread")


def tail(path: Path, lines: int) -> list[str]:
    """Return the last lines of a file, none when there is no file."""
    try:
        with path.open(errors="replace") as file:
            return [line.rstrip("\n") for line in deque(file, maxlen=lines)]
    except FileNotFoundError:
        return []


def excerpt(path: Path, lines: int) -> list[str]:
    """Return the last lines of a log, preceded by the last errors before them.

    A broker that ends for a reason says the reason first and a hundred lines of farewell after it.
    """
    everything = tail(path, EXCERPT_WINDOW)
    earlier, last = everything[:-lines], everything[-lines:]
    errors = [line for line in earlier if ERROR.search(line)][-lines // 4 :]
    return [*errors, "...", *last] if errors else last


def set_aside(layout: Layout, names: Iterable[str]) -> None:
    """Keep the logs of the last run under another name: what is shown then is of this run."""
    for name in names:
        file = layout.log(name)
        if file.exists():
            file.replace(file.with_name(f"{name}.previous.log"))


def how_it_ended(layout: Layout, name: str) -> str:
    """Return how Supervisor saw a process end last, like `exit status 1` or `terminated by SIGKILL`.

    From its log, because its interface forgets the exit status when it starts the process again.
    """
    pattern = re.compile(rf"exited: {re.escape(name)} \(([^;)]*)")
    endings = [match.group(1) for line in tail(layout.log("supervisor"), 200) if (match := pattern.search(line))]
    return endings[-1] if endings else ""


def without(text: str, secrets: Iterable[str]) -> str:
    """Return a text with every secret in it replaced."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return text
