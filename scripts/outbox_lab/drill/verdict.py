"""Judge a cell by comparing the ledger of the writers with the deliveries."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from outbox_lab.drill.ledger import Event, Ledger, Outcome, Transaction
from outbox_lab.drill.observer import Delivery


@dataclass(frozen=True)
class Delays:
    """Quantiles and maximum, in seconds, of the time from commit to delivery. None if no delivery was observed."""

    p50: float | None
    p99: float | None
    maximum: float | None


@dataclass(frozen=True)
class Verdict:
    """Counts for the events of one cell.

    `lost`: events that were committed but never delivered. `phantom`: events that were delivered although their
    transaction did not commit. `early`: events that were readable on the topic before their row was visible.
    `duplicated`: additional deliveries of an event. `unordered`: events that were first delivered after a newer version
    of the same account. `unresolved`: events of transactions whose outcome could not be determined. `wrong`: deliveries
    of committed events in which the version is incorrect, or a tombstone replaces a state, or a state replaces a
    tombstone. `undone`: events of acknowledged transactions that are missing in the restored or promoted database.
    These events count as neither lost nor phantom.
    """

    committed: int
    rolled_back: int
    unresolved: int
    delivered: int
    lost: int
    phantom: int
    early: int
    duplicated: int
    unordered: int
    delays: Delays
    lost_events: tuple[str, ...] = ()
    phantom_events: tuple[str, ...] = ()
    undone: int = 0
    wrong: int = 0


COUNTS = ("lost", "phantom", "early", "duplicated", "unordered")
"""Names of the counts that reports show."""
SHOWN_EVENTS = 20


def judge(ledger: Ledger, deliveries: Sequence[Delivery]) -> Verdict:
    """Compare a ledger, whose outcomes are resolved, with the deliveries, which are ordered within each partition."""
    committed = ledger.events(Outcome.COMMITTED)
    unresolved = ledger.events(Outcome.UNKNOWN)
    first = _first_deliveries(deliveries)
    lost = [event_id for event_id in committed if event_id not in first]
    undone = ledger.events(Outcome.UNDONE)
    explained = committed.keys() | unresolved.keys() | undone.keys()
    phantom = [event_id for event_id in first if event_id not in explained]
    return Verdict(
        committed=len(committed),
        rolled_back=len(ledger.events(Outcome.ROLLED_BACK)),
        unresolved=len(unresolved),
        delivered=len(first),
        lost=len(lost),
        phantom=len(phantom),
        early=sum(delivery.is_early is True for delivery in first.values() if delivery.event_id in committed),
        duplicated=len(deliveries) - len(first),
        unordered=_count_unordered(first.values(), ledger),
        delays=_delays(first, ledger),
        lost_events=tuple(lost[:SHOWN_EVENTS]),
        phantom_events=tuple(phantom[:SHOWN_EVENTS]),
        undone=len(undone),
        wrong=sum(_is_wrong(delivery, committed) for delivery in deliveries),
    )


def _is_wrong(delivery: Delivery, committed: Mapping[str, tuple[Event, Transaction]]) -> bool:
    if delivery.event_id not in committed:
        return False
    event = committed[delivery.event_id][0]
    return delivery.version != (None if event.is_tombstone else event.version)


def delays_over_time(ledger: Ledger, deliveries: Sequence[Delivery]) -> list[tuple[float, float]]:
    """Return the commit time and the delay of each delivered event, both in seconds, in commit order."""
    return sorted(_commit_and_delay(_first_deliveries(deliveries), ledger))


def _first_deliveries(deliveries: Sequence[Delivery]) -> dict[str, Delivery]:
    """Return a mapping from each event id to the first delivery of the event, in delivery order."""
    first: dict[str, Delivery] = {}
    for delivery in deliveries:
        first.setdefault(delivery.event_id, delivery)
    return first


def _count_unordered(first: Iterable[Delivery], ledger: Ledger) -> int:
    known = ledger.events(Outcome.COMMITTED)
    newest: dict[str, int] = {}
    count = 0
    for delivery in first:
        if delivery.event_id not in known:
            continue
        event = known[delivery.event_id][0]
        count += event.version < newest.get(event.account, 0)
        newest[event.account] = max(event.version, newest.get(event.account, 0))
    return count


def _commit_and_delay(first: dict[str, Delivery], ledger: Ledger) -> Iterable[tuple[float, float]]:
    for event_id, (_, transaction) in ledger.events(Outcome.COMMITTED).items():
        received_at = first[event_id].received_at if event_id in first else None
        if received_at is not None:
            committed_at = transaction.ended_at or transaction.intended_at
            yield committed_at, max(0.0, received_at - committed_at)


def _delays(first: dict[str, Delivery], ledger: Ledger) -> Delays:
    delays = sorted(delay for _, delay in _commit_and_delay(first, ledger))
    if not delays:
        return Delays(None, None, None)
    return Delays(_quantile(delays, 0.5), _quantile(delays, 0.99), round(delays[-1], 3))


def _quantile(ordered: list[float], share: float) -> float:
    """Return the smallest value such that at least the fraction `share` of all values is not greater than it."""
    return round(ordered[max(0, math.ceil(share * len(ordered)) - 1)], 3)
