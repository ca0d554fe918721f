"""docs/choosing.md repeats figures of docs/loss-table.md and docs/performance.md: they have to be equal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from outbox_lab.drill.ways.catalogue import WAYS

DOCS = Path(__file__).resolve().parents[3] / "docs"
LOSS_TABLE = (DOCS / "loss-table.md").read_text(encoding="utf-8")
PERFORMANCE = (DOCS / "performance.md").read_text(encoding="utf-8")
COSTS = {"statements per event": "statements", "idle statements per second": "idle/s"}
COUNTS = ("lost", "phantom", "duplicated", "unordered")


def tables(text: str) -> list[dict[str, dict[str, str]]]:
    """Return each Markdown table as rows by their first cell, with cells by heading."""
    found = []
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        headings, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines())
        found.append({row[0]: dict(zip(headings, row, strict=True)) for row in rows})
    return found


ALL_WAYS = tables(LOSS_TABLE)[0]
(MEASURED,) = (table for table in tables(PERFORMANCE) if "two-phase" in table)
CHOICES, LOADS = tables((DOCS / "choosing.md").read_text(encoding="utf-8"))


def cells(way: str) -> dict[str, dict[str, str]]:
    """Return the rows of a way in the loss table, by fault."""
    (table,) = tables(LOSS_TABLE.split(f"\n## {way}\n")[1].split("\n## ")[0])
    return table


def test_every_way_is_in_the_table() -> None:
    assert list(CHOICES) == list(ALL_WAYS)
    assert set(CHOICES) == set(WAYS)


@pytest.mark.parametrize("way", list(CHOICES))
def test_figures_are_those_of_the_loss_table(way: str) -> None:
    total, choice, faults = ALL_WAYS[way], CHOICES[way], cells(way)
    bound = re.search(r" to ([\d.]+)\)", total["lost per fault (95 %)"])
    expected = {name: total[name] for name in COUNTS} | {
        "way": way,
        "≤ lost per fault": bound[1] if bound else total["lost per fault (95 %)"],
        "p50": faults["none"]["p50"],
        "p99": faults["none"]["p99"],
        "during kill-kafka": faults["kill-kafka"]["committed"],
    }
    assert {name: value for name, value in choice.items() if name != "must run"} == expected


def test_costs_are_those_of_the_measurement() -> None:
    measured = {way: row for way, row in MEASURED.items() if way in WAYS}
    expected = {way: {"way": way, **{name: row[cost] for name, cost in COSTS.items()}} for way, row in measured.items()}
    assert expected == LOADS
