"""Reports of the benchmarks: build/bench/NAME.json in one form, and tables between markers in docs/performance-*.md.

The JSON contains `machine`, `samples` (by variant, one entry per round), `measures` (by variant), `ratios` and
`values` (numbers by name). Other keys are specific to a benchmark.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.conftest import REPOSITORY

PAGES = sorted((REPOSITORY / "docs").glob("performance-*.md"))
BOUND_HEADING = ("ratio", "measured", "must", "goal", "reached")


@dataclass(frozen=True)
class Bound:
    """A measured ratio with two limits, which are lower bounds, or upper bounds if `at_most` is set."""

    name: str
    ratio: float
    must: float
    goal: float
    at_most: bool = False

    def holds(self, limit: float) -> bool:
        return self.ratio <= limit if self.at_most else self.ratio >= limit

    def row(self) -> list[str]:
        sign = "≤" if self.at_most else "≥"
        reached = "goal" if self.holds(self.goal) else "must" if self.holds(self.must) else "missed"
        return [self.name, f"{self.ratio:.2f}", f"{sign} {self.must:.2f}", f"{sign} {self.goal:.2f}", reached]


def markdown(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def bound_table(bounds: Sequence[Bound]) -> str:
    """Return the table of bounds that follows another table; empty if there are no bounds."""
    return "\n\n" + markdown(BOUND_HEADING, [bound.row() for bound in bounds]) if bounds else ""


def spread(values: Iterable[float], digits: int = 3) -> dict[str, float]:
    """Return the rounded median, minimum and maximum."""
    numbers = list(values)
    return {
        "median": round(statistics.median(numbers), digits),
        "min": round(min(numbers), digits),
        "max": round(max(numbers), digits),
    }


def machine() -> dict[str, Any]:
    """Return the machine's description; `load` is the load average before the benchmark."""
    return {"cpus": os.cpu_count(), "load": os.getloadavg()[0], "python": platform.python_version()}


def document(
    *,
    machine: Mapping[str, object],
    samples: Mapping[str, Sequence[object]],
    measures: Mapping[str, Mapping[str, object]],
    ratios: Mapping[str, float],
    values: Mapping[str, float],
    **details: object,
) -> dict[str, Any]:
    """Return the JSON document of a benchmark."""
    return {
        "machine": dict(machine),
        "samples": {name: list(rounds) for name, rounds in samples.items()},
        "measures": {name: dict(measure) for name, measure in measures.items()},
        "ratios": {name: round(ratio, 3) for name, ratio in ratios.items()},
        "values": {name: round(value, 3) for name, value in values.items()},
        **details,
    }


def publish(name: str, content: Mapping[str, Any], tables: str) -> None:
    """Write build/bench/NAME.json and print the tables. With DOCS=1, also insert them into the documentation."""
    target = REPOSITORY / "build" / "bench" / f"{name}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    print(tables)
    print(f"raw samples: {target.relative_to(REPOSITORY)}")
    if os.environ.get("DOCS") == "1":
        write_to_page(name, tables)


def write_to_page(name: str, tables: str) -> None:
    """Replace the text between the markers of `name`. Raises ValueError if not exactly one page has them."""
    begin, end = f"<!-- bench-{name}: written by DOCS=1 make bench-{name} -->\n", f"<!-- end of bench-{name} -->"
    (page,) = [page for page in PAGES if begin in page.read_text(encoding="utf-8")]
    before, remaining = page.read_text(encoding="utf-8").split(begin)
    _, after = remaining.split(end)
    page.write_text(f"{before}{begin}{tables}\n{end}{after}", encoding="utf-8")
