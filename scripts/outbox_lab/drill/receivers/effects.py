"""Compare the effects of a cell's receivers with the ledger and with the records of the topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from outbox_lab.drill.ledger import Ledger
from outbox_lab.drill.observer import Delivery
from outbox_lab.drill.receivers.strategies import ONCE_PER_EVENT, ONCE_PER_RECORD
from outbox_lab.drill.verdict import SHOWN_EVENTS, Verdict, judge

EFFECT_COUNTS = ("missing", "repeated", "phantom", "unordered", "wrong")
"""Names of the counts that reports show for each strategy."""


@dataclass(frozen=True)
class EffectCounts:
    """Counts for the effects of the receivers that use one strategy.

    `missing`: events that have no effect although their transaction was committed. `repeated`: additional effects of an
    event. `phantom`: events that have an effect although their transaction was not committed. `unordered`: events whose
    first effect follows the first effect of a newer version of the same account. `wrong`: effects with an incorrect
    version.
    """

    strategy: str
    effects: int
    missing: int
    repeated: int
    phantom: int
    unordered: int
    wrong: int
    missing_events: tuple[str, ...] = ()
    repeated_events: tuple[str, ...] = ()


def count_effects(strategy: str, ledger: Ledger, effects: Sequence[Delivery]) -> EffectCounts:
    """Compare the effects of a strategy, in order, with a ledger whose outcomes are resolved."""
    verdict = judge(ledger, effects)
    numbers = Counter(effect.event_id for effect in effects)
    return EffectCounts(
        strategy=strategy,
        effects=len(effects),
        missing=verdict.lost,
        repeated=verdict.duplicated,
        phantom=verdict.phantom,
        unordered=verdict.unordered,
        wrong=verdict.wrong,
        missing_events=verdict.lost_events,
        repeated_events=tuple([event_id for event_id, number in numbers.items() if number > 1][:SHOWN_EVENTS]),
    )


def broken_by_receivers(counts: EffectCounts, verdict: Verdict) -> dict[str, int]:
    """Return, for each count, the number of violations that receivers added to the violations of sending (`verdict`).

    Receivers are not responsible for an event that is missing on the topic, or for a phantom that is on the topic.
    """
    broken = {
        "missing": counts.missing - verdict.lost,
        "phantom": counts.phantom - verdict.phantom,
        "unordered": counts.unordered - verdict.unordered,
        "wrong": counts.wrong - verdict.wrong,
    }
    if counts.strategy in ONCE_PER_EVENT:
        broken["repeated"] = counts.repeated
    if counts.strategy in ONCE_PER_RECORD:
        broken["repeated"] = abs(counts.repeated - verdict.duplicated)
    return broken
