"""Events with a committed record in topics, as proof of what was delivered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import IsolationLevel, Message

from outbox_events.contract.headers import EVENT_ID
from outbox_events.kafka.record import header_pairs
from outbox_events.kafka.topic_reader import read_bounds, read_records

READ_S = 120.0
"""Default time limit without a new record. A broker ends open transactions after transaction.timeout.ms, by default
less than this."""
HINT = "a transaction of another producer may be open: wait for its transaction.timeout.ms"


def delivered_event_ids(
    settings: Mapping[str, Any], topics: Iterable[str], wanted: Iterable[str], *, seconds: float = READ_S
) -> set[str]:
    """Return which of the `wanted` event ids have a committed record in the topics.

    The topics are read from their beginning to the end at the time of the call, including records of transactions
    that are open at that time: the function waits until they end. Otherwise a committed record behind an open
    transaction would be missed. The reading ends earlier if all ids are found. Raises WaitTimeoutError after `seconds`
    without a new record, and UnreachableError.
    """
    searched, found = set(wanted), set[str]()
    if not searched:
        return found

    def process(message: Message) -> bool:
        if (event_id := message_event_id(message)) in searched:
            found.add(str(event_id))
        return found == searched

    ranges = read_bounds(settings, set(topics), IsolationLevel.READ_UNCOMMITTED, seconds=seconds)
    read_records(settings, ranges, process, seconds=seconds, is_idle_limit=True, hint=HINT)
    return found


def message_event_id(message: Message) -> str | None:
    """Return the event id in the headers of a record, or None."""
    values = [value for name, value in header_pairs(message) if name == EVENT_ID and isinstance(value, bytes)]
    return values[0].decode(errors="replace") if values else None
