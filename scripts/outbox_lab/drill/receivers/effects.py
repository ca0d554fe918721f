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
"""Names of the counts that the reports show for a strategy."""


@dataclass(frozen=True)
class EffectCounts:
    """Effects of the receivers with one strategy.

    `missing`: events of committed transactions without an effect. `repeated`: additional effects of an event.
    `phantom`: events with an effect although their transaction did not commit. `unordered`: events whose first effect
    follows the first effect of a newer version of the account. `wrong`: effects with an incorrect version.
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
    """Compare the ordered effects of a strategy with a ledger whose outcomes are resolved."""
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
    """Return the violations that the receivers added to the violations of sending (`verdict`), by count.

    An event that is not on the topic cannot have an effect, and a phantom on the topic has an effect.
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
