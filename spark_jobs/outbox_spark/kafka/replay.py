"""Reading again what was read: from where, and when that is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

from outbox_spark.errors import ConfigurationError, RefusedError
from outbox_spark.jobs.model import Committed, ReadRange
from outbox_spark.kafka.ranges import TopicState
from outbox_spark.kafka.topic import Topic

BEGINNING = "beginning"


def replay(topic: Topic, state: TopicState, read: ReadRange, committed: Committed | None, asked: str) -> ReadRange:
    """`read`, begun at a time (ISO 8601) or at the `beginning`. Raises ConfigurationError, RefusedError."""
    start = state.earliest if asked == BEGINNING else topic.offsets_at(state, parsed(asked))
    since = committed.ledger_since if committed else None
    remembered = None if since is None else topic.offsets_at(state, since)
    return replayed(read, committed, start, remembered, asked)


def parsed(text: str) -> datetime:
    """A time; UTC unless it says otherwise."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        message = f"--replay-from {text} is no time"
        raise ConfigurationError(message, f"for instance 2026-01-31T06:00:00Z, or {BEGINNING}") from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def replayed(
    read: ReadRange,
    committed: Committed | None,
    start: Mapping[int, int],
    remembered: Mapping[int, int] | None,
    asked: str,
) -> ReadRange:
    """`read`, begun earlier: at `start`. Pure.

    `remembered` are the offsets from which on the ledger has every deletion, None for all. What is read again below
    them could bring back a row whose deletion is forgotten: raises RefusedError.
    """
    if committed is None:
        return read
    earlier = {partition: min(offset, start.get(partition, offset)) for partition, offset in read.start.items()}
    for partition, offset in sorted(earlier.items()):
        if remembered is not None and offset < min(remembered[partition], read.start[partition]):
            message = (
                f"topic {read.topic}: a replay from {asked} reads partition {partition} from offset {offset}; "
                f"deletions from before {committed.ledger_since:%Y-%m-%dT%H:%M:%SZ} "
                f"(offset {remembered[partition]}) are forgotten, and their rows would come back"
            )
            raise RefusedError(message, "replay from a later time, or make the table anew: outbox-rebuild")
    return replace(read, start=earlier)
