"""Where results go: build/bench/NAME.json, and with DOCS=1 a table between markers in docs/performance.md."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.conftest import REPOSITORY

DOCUMENT = REPOSITORY / "docs" / "performance.md"


@dataclass(frozen=True)
class Bound:
    """A ratio that is to be at least (or at most) so much: what must be, and what is wished for."""

    name: str
    ratio: float
    must: float
    goal: float
    at_most: bool = False

    def holds(self, limit: float) -> bool:
        return self.ratio <= limit if self.at_most else self.ratio >= limit

    def row(self) -> list[str]:
        sign = "≤" if self.at_most else "≥"
        met = "goal" if self.holds(self.goal) else "must" if self.holds(self.must) else "missed"
        return [self.name, f"{self.ratio:.2f}", f"{sign} {self.must:.2f}", f"{sign} {self.goal:.2f}", met]


BOUND_HEADING = ("ratio", "measured", "must", "goal", "reached")


def markdown(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def bound_table(bounds: Sequence[Bound]) -> str:
    """The bounds below another table; nothing where none was measured."""
    return "\n\n" + markdown(BOUND_HEADING, [bound.row() for bound in bounds]) if bounds else ""


def machine() -> dict[str, Any]:
    """What it ran on; `load` is what else ran before."""
    return {"cpus": os.cpu_count(), "load": os.getloadavg()[0], "python": platform.python_version()}


def publish(name: str, document: dict[str, Any], tables: str) -> None:
    """Write build/bench/NAME.json, print the tables, and put them into the documentation where DOCS=1."""
    target = REPOSITORY / "build" / "bench" / f"{name}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(tables)
    print(f"raw samples: {target.relative_to(REPOSITORY)}")
    if os.environ.get("DOCS") == "1":
        DOCUMENT.write_text(between_markers(DOCUMENT.read_text(encoding="utf-8"), name, tables), encoding="utf-8")


def between_markers(text: str, name: str, tables: str) -> str:
    """`text` with what stands between the markers of `name` replaced."""
    begin, end = f"<!-- bench-{name}: written by DOCS=1 make bench-{name} -->\n", f"<!-- end of bench-{name} -->"
    before, found, rest = text.partition(begin)
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise ValueError(f"{DOCUMENT.name} lacks the markers of bench-{name}: {begin.strip()} ... {end}")
    return f"{before}{begin}{tables}\n{end}{after}"
