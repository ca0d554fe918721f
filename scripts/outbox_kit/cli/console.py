"""Where words and data go: words for people to stderr, data to stdout."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from outbox_kit.errors import OutboxKitError

words = Console(stderr=True, highlight=False, soft_wrap=True)
data = Console(highlight=False)


def say(sentence: str) -> None:
    """One line of progress."""
    words.print(Text(sentence))


def fail(error: OutboxKitError) -> None:
    """An expected error and its next step."""
    words.print(Text("error: ", style="bold red").append(error.message, style="not bold default"))
    if error.hint:
        words.print(Text("hint:  ", style="bold").append(error.hint, style="not bold"))


def show_traceback() -> None:
    """The exception being handled, for `--debug`."""
    sys.stderr.write(traceback.format_exc())


def print_json(value: Any) -> None:  # noqa: ANN401 - any JSON value
    """One JSON document on stdout."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "", console: Console | None = None
) -> None:
    """A table; whole values on one line each where the output is no terminal."""
    table = Table(*columns, title=title or None, title_justify="left", box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    target = console or data
    if target.is_terminal:
        target.print(table)
    else:
        width = sum(max(map(cell_len, cells)) + 2 for cells in zip(columns, *rows, strict=True))
        Console(file=target.file, width=max(width, cell_len(title)), highlight=False).print(table)
