"""Markdown tables of outcomes for docs/receiving-matrix.md, with one row per failure and one column per strategy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from tests.integration.receiving.matrix.entries import ENTRIES
from tests.integration.receiving.matrix.failures import FAILURES, Failure
from tests.integration.receiving.matrix.outcomes import Cell, Outcome

START, END = "<!-- matrix -->\n", "<!-- end of matrix -->"


def render(outcomes: Mapping[Cell, Outcome]) -> str:
    """Return the tables of effects and of calls, and the meanings of the names of failures and strategies."""
    counted = [failure for failure in FAILURES if failure.usual.calls]
    effects = table("effects", FAILURES, outcomes, lambda outcome: outcome.effect)
    calls = table("calls", counted, outcomes, lambda outcome: str(outcome.calls))
    failures = [f"- `{failure.name}`: {failure.text}" for failure in FAILURES]
    strategies = [f"- `{entry.name}`: {entry.text}" for entry in ENTRIES]
    return "\n".join([*effects, "", *calls, "", "Failures:", "", *failures, "", "Strategies:", "", *strategies, ""])


def table(
    title: str, failures: Iterable[Failure], outcomes: Mapping[Cell, Outcome], text: Callable[[Outcome], str]
) -> list[str]:
    """Return the lines of a table. Cells that differ from the failure's usual outcome are bold."""
    lines = [row(title, *(entry.name for entry in ENTRIES)), row("---", *("---" for _ in ENTRIES))]
    for failure in failures:
        cells = []
        for entry in ENTRIES:
            outcome = outcomes.get((failure.name, entry.name))
            shown = text(outcome) if outcome else "-"
            cells.append(shown if shown in {"-", text(failure.usual)} else f"**{shown}**")
        lines.append(row(failure.name, *cells))
    return lines


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def replaced(page: str, text: str) -> str:
    """Return the page with the text between the two markers."""
    pattern = f"({re.escape(START)}).*?({re.escape(END)})"
    assert re.search(pattern, page, re.DOTALL), f"no markers {START!r} and {END!r}"
    return re.sub(pattern, lambda found: f"{found[1]}{text}{found[2]}", page, flags=re.DOTALL)
