"""Compare the effects of a cell's receivers with the ledger and with the records of the topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from outbox_lab.drill.ledger import Ledger
from outbox_lab.drill.observer import Delivery
from outbox_lab.drill.receivers.handlers import base_strategy
from outbox_lab.drill.receivers.strategies import ONCE_PER_EVENT, ONCE_PER_RECORD
from outbox_lab.drill.verdict import SHOWN_EVENTS, Findings, find

EFFECT_COUNTS = ("missing", "repeated", "phantom", "unordered", "wrong", "stale")
"""Names of the counts that reports show for each strategy."""


@dataclass(frozen=True)
class EffectCounts:
    """Counts for the effects of the receivers that use one strategy.

    `missing`: events that have no effect although their transaction was committed. `repeated`: additional effects of an
    event. `phantom`: events that have an effect although their transaction was not committed. `unordered`: events whose
    first effect follows the first effect of a newer version of the same account. `wrong`: effects with an incorrect
    version or key. `stale`: accounts whose last effect is not that of their newest event. `broken`: for each count, the
    number of differences that break a promise of the strategy because the topic does not have them.
    """

    strategy: str
    effects: int
    missing: int
    repeated: int
    phantom: int
    unordered: int
    wrong: int
    stale: int = 0
    missing_events: tuple[str, ...] = ()
    repeated_events: tuple[str, ...] = ()
    broken: dict[str, int] = field(default_factory=dict)


def count_effects(
    strategy: str, ledger: Ledger, effects: Sequence[Delivery], deliveries: Sequence[Delivery]
) -> EffectCounts:
    """Compare the effects of a strategy, in order, with a resolved ledger and with the deliveries of the topic."""
    found = find(ledger, effects)
    broken = _broken(base_strategy(strategy), found, find(ledger, deliveries))
    if base_strategy(strategy) in ONCE_PER_RECORD:
        broken |= _broken_by_record(effects, deliveries)
    return EffectCounts(
        strategy=strategy,
        effects=len(effects),
        missing=len(found.lost),
        repeated=len(found.duplicated),
        phantom=len(found.phantom),
        unordered=len(found.unordered),
        wrong=len(found.wrong + found.wrong_key),
        stale=len(found.stale),
        missing_events=tuple(found.lost[:SHOWN_EVENTS]),
        repeated_events=tuple(dict.fromkeys(found.duplicated))[:SHOWN_EVENTS],
        broken={name: count for name, count in broken.items() if count},
    )


def _broken(strategy: str, effects: Findings, topic: Findings) -> dict[str, int]:
    """Return the numbers of findings that the topic does not have. Receivers are responsible only for these."""
    broken = {
        "missing": _added(effects.lost, topic.lost),
        "phantom": _added(effects.phantom, topic.phantom),
        "unordered": _added(effects.unordered, topic.unordered),
        "wrong": _added(effects.wrong + effects.wrong_key, topic.wrong + topic.wrong_key),
    }
    if strategy in ONCE_PER_EVENT:
        broken["repeated"] = len(effects.duplicated)
    if strategy in ONCE_PER_EVENT | ONCE_PER_RECORD:
        # Elsewhere, a paused member can apply old events again after another member has applied newer ones.
        broken["stale"] = _added(effects.stale, topic.stale)
    return broken


def _added(effects: Sequence[str], topic: Sequence[str]) -> int:
    return len(set(effects) - set(topic))


def _broken_by_record(effects: Sequence[Delivery], deliveries: Sequence[Delivery]) -> dict[str, int]:
    """Compare the positions of the records that had an effect with those of the topic."""
    applied = Counter(effect.position for effect in effects)
    missing = {delivery.position for delivery in deliveries} - applied.keys()
    return {"missing": len(missing), "repeated": sum(applied.values()) - len(applied)}
