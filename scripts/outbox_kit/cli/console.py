"""Write messages to stderr, data to stdout, and plans and reports to files.

Control characters are escaped in all printed text except JSON.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
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
from outbox_common.waiting_line import WaitingLine
from outbox_events.errors import ConfigurationError, OutboxError
from outbox_kit.results.changes import Change
from outbox_kit.results.checks import Check

OUTBOX_COMMAND = re.compile(r"`(outbox [^`]+)`")
SELECTION = re.compile(r" -[pe] ")
# Command that the text tells the user to run, and the punctuation after it.
COMMAND = re.compile(r"(?:(?<=run )|(?<=then )|(?<=and )|(?<=or )|(?<=, ))`([^`\s]+ [^`]+)`[;,.:]?")

_options: ContextVar[str] = ContextVar("options", default="")
stderr = Console(stderr=True, highlight=False, soft_wrap=True)
stdout = Console(highlight=False)
waiting = WaitingLine()


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


def print_message(message: str, style: str = "") -> None:
    """Print a message to stderr, with the options that select this pipeline and environment added to its commands."""
    text = one_line(completed(message))
    print_line(Text(wrapped(text, stderr), style), stderr)
    waiting.start(text)


def print_error(error: OutboxError) -> None:
    """Print an expected error and its hint to stderr."""
    for name, style, text in (("error: ", "bold red", error.message), ("hint:  ", "bold", error.hint)):
        if text:
            print_line(Text.assemble((name, style), wrapped(printable(text), stderr, len(name))), stderr)


def print_traceback(error: OutboxError) -> None:
    """Print the traceback of an error and its causes to stderr, without the contents of table rows."""
    sys.stderr.write(printable(traceback_text(error, postgres_redacted)))


def print_text(text: str) -> None:
    """Print text to stdout."""
    waiting.start("")
    typer.echo(printable(text))


def print_json(value: Any) -> None:  # noqa: ANN401 - any JSON value
    """Print one JSON document to stdout."""
    waiting.start("")
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "", console: Console = stdout
) -> None:
    """Print a table, or on a terminal that is too narrow, one block per row. Values are never truncated or broken."""
    rows = [[printable(cell) for cell in row] for row in rows]
    width = max(_table_width(columns, rows), cell_len(title))
    if console.is_terminal and width > console.width:
        if title:
            print_line(Text(title, style="italic"), console)
        _print_blocks(columns, rows, console)
        return
    waiting.start("")
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console(file=console.file, width=width, highlight=False).print(table)


def _table_width(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    return sum(max(map(cell_len, cells)) + 2 for cells in zip(columns, *rows, strict=True)) - 2


def _print_blocks(columns: Sequence[str], rows: Sequence[Sequence[str]], console: Console) -> None:
    """Print one block per row. The first column of a table with two columns contains the names of the values."""
    if len(columns) == 2:  # noqa: PLR2004 - as the docstring describes
        print_fields([(name, value) for name, value in rows], console=console)
        return
    for row in rows:
        print_fields(list(zip(columns, row, strict=True)), console=console)
        print_line(Text(), console)


def print_fields(fields: Sequence[tuple[str, str]], *, indent: int = 0, console: Console = stdout) -> None:
    """Print a line `NAME: VALUE` for each field whose value is not empty. The values are wrapped."""
    name_width = max((len(name) for name, _ in fields), default=0) + 2
    for name, value in fields:
        if value:
            text = Text(" " * indent).append(f"{name + ':':<{name_width}}", style="bold")
            print_line(text.append(wrapped(printable(value), console, indent + name_width)), console)


def wrapped(text: str, console: Console, indent: int = 0) -> str:
    """Return the text with `indent` spaces before each further line.

    If a line is too long for the terminal, wrap the text at spaces, and put each command to run on a line of its own.
    Words and commands are never broken, so that they can be copied.
    """
    lines: list[str] = text.split("\n")
    width = max(console.width - indent, 20)
    if console.is_terminal and max(map(cell_len, lines)) > width:
        lines = [part for line in lines for part in _wrap(line, width)]
    return f"\n{' ' * indent}".join(lines)


def _wrap(text: str, width: int) -> Iterator[str]:
    for number, part in enumerate(map(str.strip, COMMAND.split(text))):
        if part and number % 2:  # a command
            yield f"  {part}"
        else:
            yield from textwrap.wrap(part, width, break_long_words=False, break_on_hyphens=False)


def print_line(text: Text, console: Console = stdout) -> None:
    """Print a text without breaking its lines."""
    waiting.start("")
    console.print(text, soft_wrap=True)


def print_changes(changes: Sequence[Change], *, console: Console = stdout) -> None:
    """Print the changes as a table, or as a list on a terminal that is too narrow.

    An exclamation mark after the action marks a dangerous change.
    """
    columns = ["system", "object", "action", "change", "reason"]
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
    if not console.is_terminal or _table_width(columns, rows) <= console.width:
        print_table(columns, rows, console=console)
        return
    for _, target, action, *details in rows:
        print_line(Text(printable(f"{action} {target}"), style="bold"), console)
        for detail in filter(None, details):
            print_line(Text(f"    {wrapped(printable(detail), console, 4)}"), console)


def write_file(path: Path, text: str) -> None:
    """Write `text` to a path that the user specified. Raises ConfigurationError if the file cannot be written."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        message = f"cannot write {path}: {error.strerror}"
        raise ConfigurationError(message, "name a file in an existing, writable folder") from None
