"""Write the report of a drill as an HTML page and as Markdown tables for docs/loss-table.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from jinja2 import Environment, PackageLoader, StrictUndefined

from outbox_common.error_text import printable
from outbox_lab.drill.cell import CellResult
from outbox_lab.drill.faults import FAULTS
from outbox_lab.drill.receivers.effects import EFFECT_COUNTS
from outbox_lab.drill.reporting.charts import delay_chart, loss_chart
from outbox_lab.drill.reporting.expected_loss import Estimate
from outbox_lab.drill.reporting.summary import (
    CellSummary,
    EffectSummary,
    FaultEstimate,
    WaySummary,
    summarize,
    summarize_effects,
)
from outbox_lab.drill.verdict import COUNTS

WHOLE_FROM = 100
LOSES_ALWAYS = "also without a fault"
WAY_HEADINGS = ("way", "faults", "committed", *COUNTS)
ESTIMATE_HEADINGS = (
    "affected by loss (95 %)",
    "most lost by one",
    "affected by phantoms (95 %)",
    "most phantoms by one",
)
EFFECT_HEADINGS = ("way", "strategy", "kills", "committed", "effects", *EFFECT_COUNTS)
CELL_HEADINGS = ("fault", "committed", *COUNTS, "p50", "p99", "max", "recovery", *ESTIMATE_HEADINGS, "load")


@dataclass(frozen=True)
class Cost:
    """Assumptions from which the expected loss is computed: the faults per year, and the value of one lost event.

    `by_fault` contains the numbers of faults per year that differ from `faults_per_year`.
    """

    faults_per_year: float = 1
    value: float = 100
    by_fault: Mapping[str, float] = field(default_factory=dict)

    def per_year(self, fault: str) -> float:
        """Return the assumed number of faults of this kind per year."""
        return self.by_fault.get(fault, self.faults_per_year)


def to_html(results: Sequence[CellResult], cost: Cost) -> str:
    """Return the report as an HTML page. The page does not contain scripts or load external resources."""
    loader = PackageLoader("outbox_lab.drill.reporting", ".")
    jinja = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    jinja.filters |= {"seconds": seconds, "amount": amount, "estimate": estimate}
    ways = summarize(results)
    page = jinja.get_template("report.html.j2").render(
        ways=ways,
        counts=COUNTS,
        effects=summarize_effects(results),
        effect_counts=EFFECT_COUNTS,
        cost=cost,
        faults=FAULTS,
        results=results,
        origin=origin(results),
        seeds=sorted({result.seed for result in results}),
        total=sum(way.committed for way in ways),
        delay_chart=delay_chart,
        loss_chart=loss_chart(ways),
        loses_always=LOSES_ALWAYS,
    )
    return printable(page)


def to_markdown(results: Sequence[CellResult]) -> str:
    """Return the origin of the results, one table of all ways, one of the effects, and one of the cells of each way.

    The tables of the cells omit the columns in which every value is 0.
    """
    ways, effects = summarize(results), summarize_effects(results)
    parts = [f"{origin(results)}\n", _table(WAY_HEADINGS, map(_way_row, ways))]
    if effects:
        parts.append(f"### Effects of receivers\n\n{_table(EFFECT_HEADINGS, map(_effect_row, effects))}")
    for way in ways:
        losses = f" Loses events {LOSES_ALWAYS}." if way.loses_always else ""
        rows = _table(*_without_zeros(CELL_HEADINGS, [_cell_row(cell) for cell in way.cells]))
        parts.append(f"### {way.way}\n\n{way.description}.{losses}\n\n{rows}")
    return "\n".join(parts)


def origin(results: Sequence[CellResult]) -> str:
    """Return the commit, the seeds and the machines of the results as a sentence."""
    commits, machines = ({getattr(result, name) or "unknown" for result in results} for name in ("commit", "machine"))
    seeds = ", ".join(str(seed) for seed in sorted({result.seed for result in results}))
    return f"Commit {', '.join(sorted(commits))}, seed {seeds}, measured on {'; '.join(sorted(machines))}."


def _way_row(way: WaySummary) -> tuple[str, ...]:
    counts = (f"{way.counts[name]:,}" for name in COUNTS)
    return way.way, str(way.faults), f"{way.committed:,}", *counts


def _effect_row(effects: EffectSummary) -> tuple[str, ...]:
    numbers = effects.kills, effects.committed, effects.effects, *effects.counts.values()
    return effects.way, effects.strategy, *(f"{number:,}" for number in numbers)


def _cell_row(cell: CellSummary) -> tuple[str, ...]:
    counts = (f"{cell.counts[name]:,}" for name in COUNTS)
    times = map(seconds, (cell.p50, cell.p99, cell.maximum, cell.recovery))
    name = cell.fault if cell.faults <= 1 else f"{cell.fault} ({cell.faults} times)"
    estimates = (text for found in (cell.lost, cell.phantom) for text in _fault_estimate(found))
    return name, f"{cell.committed:,}", *counts, *times, *estimates, cell.load or "-"


def _fault_estimate(found: FaultEstimate | None) -> tuple[str, str]:
    return ("-", "-") if found is None else (estimate(found.affected), f"{found.most:,}")


def _without_zeros(headings: Sequence[str], rows: list[tuple[str, ...]]) -> tuple[list[str], list[tuple[str, ...]]]:
    shown = [index for index, column in enumerate(zip(*rows, strict=True)) if set(column) != {"0"}]
    return [headings[index] for index in shown], [tuple(row[index] for index in shown) for row in rows]


def _table(headings: Sequence[str], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [headings, ("---", *("---:" for _ in headings[1:])), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def seconds(value: float | None) -> str:
    """Return a duration as text, in milliseconds if it is shorter than one second."""
    if value is None:
        return "-"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"


def amount(value: float) -> str:
    """Return a number as text: from WHOLE_FROM on, rounded to an integer, otherwise with three significant digits."""
    return f"{value:,.0f}" if value >= WHOLE_FROM else f"{value:.3g}"


def estimate(value: Estimate) -> str:
    """Return a mean and its upper bound as text."""
    return f"{amount(value.mean)} (≤ {amount(value.high)})"
