"""Where words and data go: words for people to stderr, data to stdout."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from outbox_kit.errors import OutboxKitError

words = Console(stderr=True, highlight=False, soft_wrap=True)
data = Console(highlight=False)


def say(sentence: str) -> None:
    """One line of progress."""
    words.print(sentence, markup=False)


def fail(error: OutboxKitError) -> None:
    """An expected error and its next step."""
    words.print(f"[bold red]error:[/] {_escape(error.message)}")
    if error.hint:
        words.print(f"[bold]hint:[/]  {_escape(error.hint)}")


def show_traceback() -> None:
    """The exception being handled, for `--debug`."""
    sys.stderr.write(traceback.format_exc())


def print_json(value: Any) -> None:  # noqa: ANN401 - any JSON value
    """One JSON document on stdout."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "") -> None:
    """A table on stdout; whole values when stdout is no terminal."""
    table = Table(*columns, title=title or None, title_justify="left", box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(_escape(cell) for cell in row))
    if data.is_terminal:
        data.print(table)
    else:
        Console(file=sys.stdout, width=400, highlight=False).print(table)


def _escape(text: str) -> str:
    return text.replace("[", r"\[")
