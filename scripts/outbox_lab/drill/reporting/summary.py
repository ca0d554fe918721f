"""Add up the results of a drill for each way of sending, and estimate the loss."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from outbox_lab.drill.cell import CellResult
from outbox_lab.drill.faults import FAULTS, fault_named
from outbox_lab.drill.receivers.effects import EFFECT_COUNTS
from outbox_lab.drill.reporting.expected_loss import Estimate, per_trial
from outbox_lab.drill.verdict import COUNTS
from outbox_lab.drill.ways.catalogue import ALL_WAYS
from outbox_lab.drill.ways.way import Promise


@dataclass(frozen=True)
class FaultEstimate:
    """Estimates for one kind of fault: the share of affected injections, and the events per injection.

    `most` is the largest number of events in one injection.
    """

    affected: Estimate
    events: Estimate
    most: int


@dataclass(frozen=True)
class CellSummary:
    """Totals of all repetitions of one way under one fault.

    `lost` and `phantom` estimate the lost and phantom events under the load `load`. They are None if there is no fault,
    or if the way loses events even without a fault.
    """

    fault: str
    promise: Promise
    faults: int
    committed: int
    counts: dict[str, int]
    p50: float | None
    p99: float | None
    maximum: float | None
    recovery: float | None
    lost: FaultEstimate | None
    phantom: FaultEstimate | None
    load: str
    results: tuple[CellResult, ...]


@dataclass(frozen=True)
class WaySummary:
    """Totals of all cells of one way. `loses_always` is True if the way loses events even without a fault."""

    way: str
    description: str
    cells: tuple[CellSummary, ...]
    faults: int
    committed: int
    counts: dict[str, int]
    loses_always: bool


@dataclass(frozen=True)
class EffectSummary:
    """Totals of the effects of one strategy for one way. `broken` contains the counts that break a promise."""

    way: str
    strategy: str
    kills: int
    committed: int
    effects: int
    counts: dict[str, int]
    broken: dict[str, int]


def summarize_effects(results: Sequence[CellResult]) -> list[EffectSummary]:
    """Return the totals of the effects for each way and strategy, in the order in which these occur in `results`."""
    pairs = dict.fromkeys((result.way, counts.strategy) for result in results for counts in result.effects)
    return [_effect_summary(way, strategy, results) for way, strategy in pairs]


def _effect_summary(way: str, strategy: str, results: Sequence[CellResult]) -> EffectSummary:
    of_way = [(result, counts) for result in results if result.way == way for counts in result.effects]
    cells = [(result, counts) for result, counts in of_way if counts.strategy == strategy]
    broken = Counter[str]()
    for _, counts in cells:
        broken.update(counts.broken)
    return EffectSummary(
        way=way,
        strategy=strategy,
        kills=sum(result.receiver_kills for result, _ in cells),
        committed=sum(result.verdict.committed for result, _ in cells),
        effects=sum(counts.effects for _, counts in cells),
        counts={name: sum(getattr(counts, name) for _, counts in cells) for name in EFFECT_COUNTS},
        broken=dict(broken),
    )


def summarize(results: Sequence[CellResult]) -> list[WaySummary]:
    """Return the totals for each way. The ways and their faults have the order in which they occur in `results`."""
    ways = dict.fromkeys(result.way for result in results)
    return [_way_summary(way, [result for result in results if result.way == way]) for way in ways]


def _way_summary(way: str, results: list[CellResult]) -> WaySummary:
    loses_always = any(result.verdict.lost for result in results if FAULTS[result.fault].is_none)
    cells = tuple(
        _cell_summary(way, fault, [result for result in results if result.fault == fault], loses_always=loses_always)
        for fault in dict.fromkeys(result.fault for result in results)
    )
    return WaySummary(
        way=way,
        description=ALL_WAYS[way].description,
        cells=cells,
        faults=sum(cell.faults for cell in cells),
        committed=sum(cell.committed for cell in cells),
        counts={name: sum(cell.counts[name] for cell in cells) for name in COUNTS},
        loses_always=loses_always,
    )


def _cell_summary(way: str, fault: str, results: list[CellResult], *, loses_always: bool) -> CellSummary:
    judged = [] if loses_always else [result for result in results if not result.partitions_without_markers]
    verdicts = [result.verdict for result in results]
    return CellSummary(
        fault=fault,
        promise=ALL_WAYS[way].promise_under(fault_named(fault)),
        faults=sum(result.injections for result in results),
        committed=sum(verdict.committed for verdict in verdicts),
        counts={name: sum(getattr(verdict, name) for verdict in verdicts) for name in COUNTS},
        p50=_largest(verdict.delays.p50 for verdict in verdicts),
        p99=_largest(verdict.delays.p99 for verdict in verdicts),
        maximum=_largest(verdict.delays.maximum for verdict in verdicts),
        recovery=_largest(seconds for result in results for seconds in result.recovery_s),
        lost=_estimate([count for result in judged for count in result.lost_by_fault]),
        phantom=_estimate([count for result in judged for count in result.phantom_by_fault]),
        load=", ".join(dict.fromkeys(_load(result) for result in results)),
        results=tuple(results),
    )


def _estimate(counts: Sequence[int]) -> FaultEstimate | None:
    """Estimate from the number of events in each injection. The bound assumes that each affected one is the worst.

    The events of one injection depend on each other, so their sum has no Poisson distribution.
    """
    if not counts:
        return None
    share, most = per_trial(sum(count > 0 for count in counts), len(counts)), max(counts)
    affected = Estimate(share.mean, min(share.high, 1.0))
    return FaultEstimate(affected, Estimate(sum(counts) / len(counts), affected.high * max(1, most)), most)


def _load(result: CellResult) -> str:
    """Return the load of a cell as text, because the number of lost events depends on it."""
    return f"{result.load['rate']:g}/s in {result.load['writers']} threads" if result.load else ""


def _largest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
