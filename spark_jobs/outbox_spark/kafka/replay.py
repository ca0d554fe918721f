"""Replay records by reading a range that starts before the committed offsets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

from outbox_events.errors import ConfigurationError, RefusedError
from outbox_spark.jobs.model import ReadRange, TableProgress
from outbox_spark.kafka.offset_ranges import TopicDescription
from outbox_spark.kafka.topic_access import Topic

BEGINNING = "beginning"
_EPOCH = datetime.fromtimestamp(0, UTC)


def replay(
    topic: Topic, state: TopicDescription, read_range: ReadRange, committed: TableProgress | None, replay_from: str
) -> ReadRange:
    """Return `read_range` with its start moved back to a time (ISO 8601) or to the `beginning`.

    Raises ConfigurationError for an invalid time, and RefusedError under the conditions of `replay_range`.
    """
    # The log start offset is not used, because it can be lower than the first record's offset and the ledger's start.
    since = _EPOCH if replay_from == BEGINNING else parse_time(replay_from)
    start = topic.offsets_at(state, since)
    ledger_since = committed.ledger_since if committed else None
    ledger_start = None if ledger_since is None else topic.offsets_at(state, ledger_since)
    return replay_range(read_range, committed, start, ledger_start, replay_from)


def parse_time(text: str) -> datetime:
    """Parse an ISO 8601 time. A time without a UTC offset is in UTC. Raises ConfigurationError for other text."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        message = f"--replay-from {text} is not a time"
        raise ConfigurationError(
            message, f"use an ISO 8601 time such as 2026-01-31T06:00:00Z, or `{BEGINNING}`"
        ) from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def replay_range(
    read_range: ReadRange,
    committed: TableProgress | None,
    start: Mapping[int, int],
    ledger_start: Mapping[int, int] | None,
    replay_from: str,
) -> ReadRange:
    """Return `read_range` with an earlier start.

    `ledger_start` contains the offsets from which the tombstone ledger is complete; None means from the beginning.
    Raises RefusedError for a start before these offsets, because deleted rows could be resurrected.
    """
    if committed is None:
        return read_range
    offsets = {partition: min(offset, start.get(partition, offset)) for partition, offset in read_range.start.items()}
    for partition, offset in sorted(offsets.items()):
        if ledger_start is not None and offset < min(ledger_start[partition], read_range.start[partition]):
            message = (
                f"topic {read_range.topic}: a replay from {replay_from} reads partition {partition} from offset "
                f"{offset}, but the ledger has no deletions before {committed.ledger_since:%Y-%m-%dT%H:%M:%SZ} "
                f"(offset {ledger_start[partition]}), so deleted rows could be resurrected"
            )
            raise RefusedError(message, "replay from a later time, or run outbox-rebuild")
    return replace(read_range, start=offsets)
