"""Judge a cell by comparing the ledger of the writers with the deliveries."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from outbox_events.contract.partitioner import partition_of
from outbox_lab.drill.ledger import Event, Ledger, Outcome, Transaction
from outbox_lab.drill.observer import Delivery

Committed = Mapping[str, tuple[Event, Transaction]]


@dataclass(frozen=True)
class Delays:
    """Quantiles and maximum, in seconds, of the time from commit to delivery. None if no delivery was observed."""

    p50: float | None
    p99: float | None
    maximum: float | None


@dataclass(frozen=True)
class Findings:
    """Ids of the events in which deliveries differ from the ledger, one for each difference. See Verdict."""

    lost: list[str]
    phantom: list[str]
    early: list[str]
    duplicated: list[str]
    unordered: list[str]
    stale: list[str]
    wrong: list[str]
    wrong_key: list[str]
    misplaced: list[str]


@dataclass(frozen=True)
class Verdict:
    """Counts for the events of one cell.

    `lost`: events that were committed but never delivered, and undone events if the fault must not undo commits.
    `phantom`: events that were delivered although the database does not contain their transaction. `early`: events that
    were readable on the topic before their row was visible. `duplicated`: additional deliveries of an event.
    `unordered`: events that were first delivered after a newer version of the same account. `unresolved`: events of
    transactions whose outcome could not be determined. `wrong`: deliveries of committed events in which the version is
    incorrect, or a tombstone replaces a state, or a state replaces a tombstone. `undone`: events of acknowledged
    transactions that are missing in the database. `stale`: keys whose last record is not their newest committed event.
    `wrong_key`: deliveries of committed events with the key of another account. `misplaced`: deliveries in a different
    partition than the one that the partitioner selects for their key.
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
    stale: int = 0
    wrong_key: int = 0
    misplaced: int = 0


COUNTS = ("lost", "phantom", "early", "duplicated", "unordered", "stale")
"""Names of the counts that reports show."""
OTHER_COUNTS = ("wrong", "wrong_key", "misplaced", "unresolved", "undone")
"""Names of the counts that are shown only with the result of a cell."""
SHOWN_EVENTS = 20


def judge(
    ledger: Ledger, deliveries: Sequence[Delivery], *, partitions: int | None = None, is_restore: bool = False
) -> Verdict:
    """Compare a ledger, whose outcomes are resolved, with the deliveries, which are ordered within each partition.

    If `partitions`, the number of partitions of the topic, is None, places are not judged. With `is_restore`, undone
    events are not lost, because a restored backup does not contain them.
    """
    found = find(ledger, deliveries, partitions=partitions, is_restore=is_restore)
    first = _first_deliveries(deliveries)
    return Verdict(
        committed=len(ledger.events(Outcome.COMMITTED)),
        rolled_back=len(ledger.events(Outcome.ROLLED_BACK)),
        unresolved=len(ledger.events(Outcome.UNKNOWN)),
        delivered=len(first),
        lost=len(found.lost),
        phantom=len(found.phantom),
        early=len(found.early),
        duplicated=len(found.duplicated),
        unordered=len(found.unordered),
        delays=_delays(first, ledger),
        lost_events=tuple(found.lost[:SHOWN_EVENTS]),
        phantom_events=tuple(found.phantom[:SHOWN_EVENTS]),
        undone=len(ledger.events(Outcome.UNDONE)),
        wrong=len(found.wrong),
        stale=len(found.stale),
        wrong_key=len(found.wrong_key),
        misplaced=len(found.misplaced),
    )


def find(
    ledger: Ledger, deliveries: Sequence[Delivery], *, partitions: int | None = None, is_restore: bool = False
) -> Findings:
    """Return the events in which the deliveries differ from the ledger. The parameters are those of `judge`."""
    committed, undone = ledger.events(Outcome.COMMITTED), ledger.events(Outcome.UNDONE)
    explained = committed.keys() | ledger.events(Outcome.UNKNOWN).keys()
    first = _first_deliveries(deliveries)
    known = [(delivery, committed[delivery.event_id][0]) for delivery in deliveries if delivery.event_id in committed]
    return Findings(
        lost=[event_id for event_id in committed if event_id not in first] + ([] if is_restore else [*undone]),
        phantom=[event_id for event_id in first if event_id not in explained],
        early=[
            delivery.event_id for delivery in first.values() if delivery.is_early and delivery.event_id in committed
        ],
        duplicated=list((Counter(delivery.event_id for delivery in deliveries) - Counter([*first])).elements()),
        unordered=_unordered(first.values(), committed),
        stale=_stale(ledger, deliveries),
        wrong=[delivery.event_id for delivery, event in known if delivery.version != _version(event)],
        wrong_key=[delivery.event_id for delivery, event in known if delivery.key != event.account],
        misplaced=[delivery.event_id for delivery in deliveries if partitions and _is_misplaced(delivery, partitions)],
    )


def count_by_fault(ledger: Ledger, event_ids: Iterable[str], recovered_at: Sequence[float]) -> tuple[int, ...]:
    """Return the number of these events for each injection. `recovered_at` contains the end of each outage.

    An event belongs to the first outage that ended after its commit. Events after the last outage belong to this one,
    as do events that are not in the ledger.
    """
    times = {
        event.event_id: transaction.ended_at or transaction.intended_at
        for transaction in ledger.transactions.values()
        for event in transaction.events
    }
    counts = [0] * len(recovered_at)
    for event_id in event_ids if counts else ():
        ended = [number for number, end in enumerate(recovered_at) if end >= times.get(event_id, math.inf)]
        counts[min(ended, default=len(counts) - 1)] += 1
    return tuple(counts)


def delays_over_time(ledger: Ledger, deliveries: Sequence[Delivery]) -> list[tuple[float, float]]:
    """Return the commit time and the delay of each delivered event, both in seconds, in commit order."""
    return sorted(_commit_and_delay(_first_deliveries(deliveries), ledger))


def _version(event: Event) -> int | None:
    return None if event.is_tombstone else event.version


def _is_misplaced(delivery: Delivery, partitions: int) -> bool:
    return partition_of(delivery.key.encode(), partitions) != delivery.partition


def _first_deliveries(deliveries: Sequence[Delivery]) -> dict[str, Delivery]:
    """Return a mapping from each event id to the first delivery of the event, in delivery order."""
    first: dict[str, Delivery] = {}
    for delivery in deliveries:
        first.setdefault(delivery.event_id, delivery)
    return first


def _unordered(first: Iterable[Delivery], committed: Committed) -> list[str]:
    newest: dict[str, int] = {}
    found = []
    for delivery in first:
        if delivery.event_id not in committed:
            continue
        event = committed[delivery.event_id][0]
        if event.version < newest.get(event.account, 0):
            found.append(event.event_id)
        newest[event.account] = max(event.version, newest.get(event.account, 0))
    return found


def _stale(ledger: Ledger, deliveries: Sequence[Delivery]) -> list[str]:
    """Return the accounts whose last record is not their newest event. Skip accounts with an unresolved event."""
    last = {delivery.key: delivery.event_id for delivery in deliveries}
    unresolved = {event.account for event, _ in ledger.events(Outcome.UNKNOWN).values()}
    return [
        account
        for account, event in ledger.newest().items()
        if account not in unresolved and last.get(account, event.event_id) != event.event_id
    ]


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
