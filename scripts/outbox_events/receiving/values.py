"""Decoders of record values, for `Event.value`: JSON, and unchanged bytes."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from outbox_events.receiving.event import Event, InvalidRecordError


def raw(event: Event) -> bytes | None:
    """Return the value as it is in the topic."""
    return event.raw_value


def json_value(event: Event) -> Any:  # noqa: ANN401 - any JSON value
    """Return the value of a record whose bytes are JSON in UTF-8. Raises InvalidRecordError for other bytes."""
    try:
        return json.loads(event.raw_value or b"", parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:
        # The message of the error would contain the payload.
        raise InvalidRecordError(f"value of record {event.place} is not JSON ({type(error).__name__})") from None


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
