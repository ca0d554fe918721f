"""What a run of the demo has to show: as data for build/demo/result.json, and as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from time import monotonic
from typing import Any

from outbox_kit.demo.compare_values import Comparison
from outbox_kit.demo.workload import WorkloadCounts


@dataclass(frozen=True)
class Table:
    """A table to be printed: a title, the heads of its columns, and rows of text."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass
class DemoReport:
    """The result of one run; filled step by step.

    `rows` counts the rows of each target's tables after the run, by target and table. `seconds`
    is wall-clock time by step, in the order of the steps. `dead_letters_expected` is how many
    events were written to be refused.
    """

    workload: WorkloadCounts | None = None
    rows: dict[str, dict[str, int]] = field(default_factory=dict)
    dead_letters: int = 0
    dead_letters_expected: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    comparisons: list[Comparison] = field(default_factory=list)

    @property
    def match(self) -> bool:
        """Whether every target was compared and shows what was committed, and nothing else was refused.

        False before the first comparison: nothing has been proved by then.
        """
        return not self.mismatches

    @property
    def mismatches(self) -> list[str]:
        """Why `match` is false, a line each."""
        if not self.comparisons:
            return ["no target was compared"]
        found = [each.words() for each in self.comparisons if not each.match]
        if self.dead_letters != self.dead_letters_expected:
            found.append(f"{self.dead_letters} dead letters, expected {self.dead_letters_expected}")
        return found

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Take the time of one step; a step that fails has its time as well."""
        started = monotonic()
        try:
            yield
        finally:
            self.seconds[name] = round(self.seconds.get(name, 0.0) + monotonic() - started, 3)

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON-ready data; keys of aggregates and names of columns, no values of theirs."""
        workload = self.workload
        return {
            "match": self.match,
            "workload": None if workload is None else {"transactions": workload.transactions, **asdict(workload)},
            "rows": self.rows,
            "dead_letters": self.dead_letters,
            "dead_letters_expected": self.dead_letters_expected,
            "seconds": self.seconds,
            "comparisons": [{**asdict(each), "match": each.match} for each in self.comparisons],
        }

    def tables(self) -> list[Table]:
        """The report as tables; one that has no rows is left out."""
        tables = [self._written(), self._compared(), self._differences(), self._times()]
        return [table for table in tables if table.rows]

    def _written(self) -> Table:
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
                ("tombstones among them", f"{counts.tombstones:,}"),
                ("transactions per second", f"{per_second:,.0f}"),
                ("dead letters (expected)", f"{self.dead_letters:,} ({self.dead_letters_expected:,})"),
            ]
        return Table("Written", ("what", "count"), tuple(rows))

    def _compared(self) -> Table:
        heads = (
            "target",
            "aggregate",
            "source rows",
            "target rows",
            "missing",
            "unexpected",
            "duplicated",
            "different",
        )
        rows = tuple(
            (
                each.target,
                each.aggregate,
                f"{each.source_rows:,}",
                f"{each.target_rows:,}",
                f"{each.missing_count:,}",
                f"{each.unexpected_count:,}",
                f"{each.duplicated_count:,}",
                f"{each.different_count:,}",
                "equal" if each.match else "NOT EQUAL",
            )
            for each in self.comparisons
        )
        return Table("Source and targets", (*heads, "result"), rows)

    def _differences(self) -> Table:
        rows: list[tuple[str, ...]] = []
        for each in self.comparisons:
            place = (each.target, each.aggregate)
            rows += [(*place, key, "missing") for key in each.missing]
            rows += [(*place, key, "unexpected") for key in each.unexpected]
            rows += [(*place, key, "duplicated") for key in each.duplicated]
            rows += [(*place, row.key, f"differs in {', '.join(row.columns)}") for row in each.different]
        return Table("Differences (the first of each kind)", ("target", "aggregate", "key", "what"), tuple(rows))

    def _times(self) -> Table:
        rows = tuple((name, f"{seconds:.1f}") for name, seconds in self.seconds.items())
        return Table("Time", ("step", "seconds"), rows)
