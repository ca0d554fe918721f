"""Write messages to stderr, data to stdout, and plans and reports to files.

Control characters are escaped in all printed text except JSON.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from outbox_common.error_text import one_line, postgres_redacted, printable, traceback_text
from outbox_events.errors import ConfigurationError, OutboxError
from outbox_kit.results.changes import Change
from outbox_kit.results.checks import Check

OUTBOX_COMMAND = re.compile(r"`(outbox [^`]+)`")
SELECTION = re.compile(r" -[pe] ")

_options: ContextVar[str] = ContextVar("options", default="")
stderr = Console(stderr=True, highlight=False, soft_wrap=True)
stdout = Console(highlight=False)


@contextmanager
def commands_completed(options: str) -> Iterator[None]:
    """Have completed() add `options` within the block, and add them to the hint of an error that the block raises."""
    token = _options.set(options)
    try:
        yield
    except OutboxError as error:
        error.hint = completed(error.hint)
        raise
    finally:
        _options.reset(token)


def completed(text: str) -> str:
    """Return the text, with the options from commands_completed() added to each `outbox` command without -p and -e."""
    options = _options.get()
    return OUTBOX_COMMAND.sub(lambda match: _complete(match[1], options), text) if options else text


def completed_checks(checks: list[Check]) -> list[Check]:
    """Return the checks, with the options from commands_completed() added to the commands in their remedies."""
    return [replace(check, remedy=completed(check.remedy)) for check in checks]


def _complete(command: str, options: str) -> str:
    return f"`{command}`" if SELECTION.search(command) else f"`{command} {options}`"


def print_message(message: str) -> None:
    """Print one line to stderr, with the options that select this pipeline and environment added to its commands."""
    stderr.print(Text(one_line(completed(message))))


def print_error(error: OutboxError) -> None:
    """Print an expected error and its hint to stderr."""
    stderr.print(Text("error: ", style="bold red").append(printable(error.message), style="not bold default"))
    if error.hint:
        stderr.print(Text("hint:  ", style="bold").append(printable(error.hint), style="not bold"))


def print_traceback(error: OutboxError) -> None:
    """Print the traceback of an error and its causes to stderr, without the contents of table rows."""
    sys.stderr.write(printable(traceback_text(error, postgres_redacted)))


def print_text(text: str) -> None:
    """Print text to stdout."""
    typer.echo(printable(text))


def print_json(value: Any) -> None:  # noqa: ANN401 - any JSON value
    """Print one JSON document to stdout."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "", console: Console = stdout
) -> None:
    """Print a table. Values are never truncated. Long values are wrapped only on a terminal."""
    rows = [[printable(cell) for cell in row] for row in rows]
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    if console.is_terminal:
        console.print(table)
    else:
        width = sum(max(map(cell_len, cells)) + 2 for cells in zip(columns, *rows, strict=True))
        Console(file=console.file, width=max(width, cell_len(title)), highlight=False).print(table)


def print_changes(changes: Sequence[Change], *, console: Console = stdout) -> None:
    """Print the changes as a table. An exclamation mark after the action marks a dangerous change."""
    rows = [
        [
            change.system,
            change.target,
            f"{change.operation} !" if change.danger else change.operation,
            " → ".join(filter(None, (change.before, change.after))),
            change.reason,
        ]
        for change in changes
    ]
    print_table(["system", "object", "action", "change", "reason"], rows, console=console)


def write_file(path: Path, text: str) -> None:
    """Write `text` to a path that the user specified. Raises ConfigurationError if the file cannot be written."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        message = f"cannot write {path}: {error.strerror}"
        raise ConfigurationError(message, "name a file in an existing, writable folder") from None
