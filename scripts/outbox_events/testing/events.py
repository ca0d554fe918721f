"""Make events for tests."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from copy import deepcopy
from typing import Any
from uuid import UUID, uuid4

from outbox_events.contract.headers import EVENT_ID, EVENT_TYPE
from outbox_events.receiving.event import Event

DEFAULT_TOPIC = "events"


def event(
    event_type: str,
    payload: Any = None,  # noqa: ANN401 - the decoder of the service decides
    *,
    key: str | UUID | bytes = "1",
    topic: str = DEFAULT_TOPIC,
    partition: int = 0,
    event_id: str | UUID | None = None,
    headers: Mapping[str, str] | None = None,
    timestamp_ms: int | None = None,
) -> Event:
    """Return an event as a handler receives it. By default, its id is new, and its timestamp is the current time.

    `payload` is the value that the `decode` function of the service returns for the record. Bytes are the value of the
    record itself, which TestReceiver decodes with its own `decode` function. None is a tombstone.
    """
    texts = {EVENT_TYPE: event_type, EVENT_ID: str(event_id or uuid4()), **(headers or {})}
    is_raw = payload is None or isinstance(payload, bytes)
    return Event(
        topic,
        partition,
        0,
        key if isinstance(key, bytes) else str(key).encode(),
        payload if is_raw else json.dumps(payload, default=str).encode(),
        texts,
        tuple((name, text.encode()) for name, text in texts.items()),
        round(time.time() * 1000) if timestamp_ms is None else timestamp_ms,
        None if is_raw else lambda _: deepcopy(payload),  # a handler could change the value before its next attempt
    )
