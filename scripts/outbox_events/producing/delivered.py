"""Find delivered records on their topics.

The search begins at the time at which the first record was saved. First, it reads uncommitted records too, which does
not wait for open transactions. Only if a searched record is found does it wait until it is known whether that record is
committed. It does not wait for transactions of other producers that begin after the record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import IsolationLevel, KafkaException, Message

from outbox_events.errors import UnreachableError
from outbox_events.kafka import topic_requests
from outbox_events.kafka.offsets import source_of
from outbox_events.kafka.topic_reader import Partition, missing_topics, read_bounds, read_records
from outbox_events.kafka.topic_requests import Bounds, kafka_error, unreadable
from outbox_events.producing.stored_record import message_event_id

READ_S = 120.0
"""Default time limit of a recovery's waits. It exceeds the default transaction.timeout.ms, after which a broker ends
open transactions."""
CLOCK_MARGIN_S = 3600.0
"""Largest tolerated difference between the clocks of the database server, the producers and the brokers."""
HINT = "a transaction of another producer might be open: wait until its transaction.timeout.ms has passed"


@dataclass(frozen=True)
class Found:
    """Event ids of the delivered records, and the searched topics that do not exist."""

    event_ids: set[str]
    missing_topics: set[str]


def find_delivered(
    settings: Mapping[str, Any], searched: Iterable[tuple[str, str]], since: float, *, seconds: float = READ_S
) -> Found:
    """Search for committed records, given as pairs of topic and event id, that were sent after the Unix time `since`.

    `since` is a time of the database server. The search ends at the ends that the topics have when it begins. Raises
    WaitTimeoutError after `seconds` without a new record, or if an open transaction hides a found record for `seconds`.
    Raises UnreachableError.
    """
    pairs = set(searched)
    topics = {topic for topic, _ in pairs}
    missing = missing_topics(settings, topics, seconds=seconds) if topics else set[str]()
    start = since - CLOCK_MARGIN_S
    ranges = read_bounds(settings, topics - missing, IsolationLevel.READ_UNCOMMITTED, seconds=seconds, since=start)
    places: dict[Partition, list[int]] = {}
    found: set[str] = set()

    def note_place(message: Message) -> None:
        if _pair(message) in pairs:
            places.setdefault(source_of(message), []).append(message.offset() or 0)

    def note_id(message: Message) -> None:
        if _pair(message) in pairs:
            found.add(_pair(message)[1])

    read_records(settings, ranges, note_place, seconds=seconds, is_idle_limit=True, isolation_level="read_uncommitted")
    read_records(settings, _ranges_of(places), note_id, seconds=seconds, hint=HINT)
    return Found(found, missing)


def compacted_topics(settings: Mapping[str, Any], topics: Collection[str], seconds: float) -> set[str]:
    """Return the compacted topics among `topics`. Raises UnreachableError, for example without DescribeConfigs."""
    try:
        configs = topic_requests.configs(topic_requests.admin_client(settings), topics, seconds=seconds)
    except TimeoutError:
        raise UnreachableError(f"cannot read the settings of topics {', '.join(sorted(topics))}: no response") from None
    except KafkaException as error:
        hint = "check the brokers, and grant the client DescribeConfigs on the topics"
        raise unreadable(", ".join(sorted(topics)), kafka_error(error), hint=hint) from None
    return {name for name, config in configs.items() if "compact" in config["cleanup.policy"]}


def _pair(message: Message) -> tuple[str, str]:
    return message.topic() or "", message_event_id(message) or ""


def _ranges_of(places: Mapping[Partition, Collection[int]]) -> dict[str, dict[int, Bounds]]:
    """Return the ranges that contain the places."""
    ranges: dict[str, dict[int, Bounds]] = {}
    for (topic, number), offsets in places.items():
        ranges.setdefault(topic, {})[number] = Bounds(min(offsets), max(offsets) + 1)
    return ranges
