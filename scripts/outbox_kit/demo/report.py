"""Return the result of a demo run as data for build/demo/result.json and as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from time import monotonic
from typing import Any

from outbox_kit.demo.compare_values import KINDS, Comparison
from outbox_kit.demo.workload import WorkloadCounts

# Headings of the numeric fields of Comparison.
COUNTS = {"source_rows": "source", "target_rows": "target"} | {f"{kind}_count": kind for kind in KINDS}


@dataclass(frozen=True)
class Table:
    """A table to print, with its title, headings and rows."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass
class DemoReport:
    """Result of one run. Each step of the demo adds its own results.

    `row_counts` maps each target and table to its number of rows after the run. `seconds` contains the wall-clock
    time of each step, in the order of the steps. `expected_dead_letter_count` is the number of invalid events that the
    workload wrote.
    """

    workload: WorkloadCounts | None = None
    row_counts: dict[str, dict[str, int]] = field(default_factory=dict)
    dead_letter_count: int = 0
    expected_dead_letter_count: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    comparisons: list[Comparison] = field(default_factory=list)

    @property
    def match(self) -> bool:
        """Whether every target equals the source row by row, and the number of dead letters is as expected.

        The value is False before the first comparison.
        """
        return not self.mismatches

    @property
    def mismatches(self) -> list[str]:
        """The reasons why `match` is false. The list is empty if `match` is true."""
        if not self.comparisons:
            return ["no target was compared"]
        reasons = [comparison.summary() for comparison in self.comparisons if not comparison.match]
        if self.dead_letter_count != self.expected_dead_letter_count:
            reasons.append(f"{self.dead_letter_count} dead letters, expected {self.expected_dead_letter_count}")
        return reasons

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure the duration of one step, even if the step fails."""
        started = monotonic()
        try:
            yield
        finally:
            self.seconds[name] = round(self.seconds.get(name, 0.0) + monotonic() - started, 3)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as data for JSON. The data contains keys and column names, but not column values."""
        workload = self.workload
        return {
            "match": self.match,
            "workload": None if workload is None else {"transactions": workload.transactions, **asdict(workload)},
            "rows": self.row_counts,
            "dead_letters": self.dead_letter_count,
            "dead_letters_expected": self.expected_dead_letter_count,
            "seconds": self.seconds,
            "comparisons": [{**asdict(entry), "match": entry.match} for entry in self.comparisons],
        }

    def tables(self) -> list[Table]:
        """Return the report as tables, and omit empty tables."""
        tables = [self._workload_table(), self._comparison_table(), self._difference_table(), self._duration_table()]
        return [table for table in tables if table.rows]

    def _workload_table(self) -> Table:
        rows: list[tuple[str, ...]] = []
        if self.workload is not None:
            counts = self.workload
            per_second = counts.transactions / counts.seconds if counts.seconds else 0.0
            rows = [
                ("transactions committed", f"{counts.committed:,}"),
                ("transactions rolled back", f"{counts.rolled_back:,}"),
                ("savepoints rolled back", f"{counts.savepoints_rolled_back:,}"),
                ("events", f"{counts.events:,}"),
                *((f"events of {name}", f"{count:,}") for name, count in counts.events_by_aggregate.items()),
                ("events that are tombstones", f"{counts.tombstones:,}"),
                ("transactions per second", f"{per_second:,.0f}"),
                ("dead letters (expected)", f"{self.dead_letter_count:,} ({self.expected_dead_letter_count:,})"),
            ]
        return Table("Written", ("measure", "count"), tuple(rows))

    def _comparison_table(self) -> Table:
        rows = tuple(
            (f"{entry.target}.{entry.aggregate}", *(f"{getattr(entry, name):,}" for name in COUNTS))
            for entry in self.comparisons
        )
        return Table("Rows of source and targets", ("table", *COUNTS.values()), rows)

    def _difference_table(self) -> Table:
        rows: list[tuple[str, ...]] = []
        for entry in self.comparisons:
            first_cells = (entry.target, entry.aggregate)
            for kind in KINDS[:3]:
                rows += [(*first_cells, key, kind) for key in getattr(entry, kind)]
            rows += [(*first_cells, row.key, f"differs in {', '.join(row.columns)}") for row in entry.different]
        return Table("Differences (the first of each kind)", ("target", "aggregate", "key", "difference"), tuple(rows))

    def _duration_table(self) -> Table:
        rows = tuple((name, f"{seconds:.1f}") for name, seconds in self.seconds.items())
        return Table("Time", ("step", "seconds"), rows)
