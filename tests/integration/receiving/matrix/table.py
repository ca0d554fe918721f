"""Markdown table of the outcomes, for docs/receiving-matrix.md."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tests.integration.receiving.matrix.entries import ENTRIES
from tests.integration.receiving.matrix.failures import FAILURES
from tests.integration.receiving.matrix.outcomes import Cell, Outcome

START, END = "<!-- matrix -->\n", "<!-- end of matrix -->"


def render(outcomes: Mapping[Cell, Outcome]) -> str:
    """Return the table of effects, the numbered failures, and the calls of the dependency."""
    numbers = range(1, len(FAILURES) + 1)
    lines = [row("strategy", *map(str, numbers)), row("---", *("---" for _ in numbers))]
    for entry in ENTRIES:
        cells = (outcomes.get((failure.name, entry.name)) for failure in FAILURES)
        lines.append(row(entry.name, *(cell.text if cell else "-" for cell in cells)))
    names = [f"{number}. {failure.text}" for number, failure in enumerate(FAILURES, 1)]
    return "\n".join([*lines, "", *names, "", *calls(outcomes), ""])


def calls(outcomes: Mapping[Cell, Outcome]) -> list[str]:
    """Return the table of calls of the dependency, for the failures that count them."""
    counted = {failure.name: number for number, failure in enumerate(FAILURES, 1) if failure.usual.calls}
    lines = [
        row("calls of the dependency", *(f"failure {number}" for number in counted.values())),
        row("---", *("---:" for _ in counted)),
    ]
    for entry in ENTRIES:
        cells = [outcomes.get((name, entry.name)) for name in counted]
        if any(cells):
            lines.append(row(entry.name, *(str(cell.calls) if cell else "-" for cell in cells)))
    return lines


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def replaced(page: str, text: str) -> str:
    """Return the page with the text between the two markers."""
    pattern = f"({re.escape(START)}).*?({re.escape(END)})"
    assert re.search(pattern, page, re.DOTALL), f"no markers {START!r} and {END!r}"
    return re.sub(pattern, lambda found: f"{found[1]}{text}{found[2]}", page, flags=re.DOTALL)
