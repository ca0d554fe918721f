"""Compute the ids that strategies store, and report different events that have the same id."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

from outbox_events.receiving.event import Event, Identify
from outbox_events.receiving.function_bodies import require_body

log = logging.getLogger("outbox_events.receiving")
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
REMEMBERED_IDS = 10_000


class EventIds:
    """Computes the ids of a receiver's events, and remembers recent ids to find an id that does not identify events."""

    def __init__(self, identify: Identify) -> None:
        require_body(identify)
        self._identify = identify
        self._recent: dict[str, tuple[str, tuple[str, int]]] = {}

    def of(self, events: Sequence[Event]) -> list[str]:
        """Return the stored ids of the events. Raises InvalidRecordError if an event has no id.

        Logs a warning if two records with different types or values have one id, because the second is not applied.
        """
        return [self._remembered(event, stored_id(event, self._identify(event))) for event in events]

    def _remembered(self, event: Event, event_id: str) -> str:
        if event_id not in (event.event_id, event.place):  # a UUID and a position are unique
            content = (event.event_type, hash(event.raw_value))
            place, earlier = self._recent.setdefault(event_id, (event.place, content))
            if earlier != content and place != event.place:
                message = "records %s and %s have one event id, but different types or values: only one is applied"
                log.warning(message, place, event.place, extra={"event_id": event_id, "event_type": event.event_type})
            if len(self._recent) > REMEMBERED_IDS:
                del self._recent[next(iter(self._recent))]
        return event_id


def stored_id(event: Event, event_id: str) -> str:
    """Return the id, preceded by the topic unless it is unique in all topics: a UUID in the header, or a position."""
    is_unique = event_id == event.place or (event_id == event.event_id and UUID.fullmatch(event_id))
    return event_id if is_unique else f"{event.topic}:{event_id}"
