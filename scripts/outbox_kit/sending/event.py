"""Event and its outbox row, validated before any SQL is executed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from outbox_kit.errors import RefusedError
from outbox_kit.record_headers import CONTRACT_HEADERS
from outbox_kit.sending.values import UnfitError, text_reason, to_json

RESERVED_HEADERS = frozenset(CONTRACT_HEADERS)
"""Headers that the connector writes from the other columns of the row."""

Row = dict[str, str | None]
"""Outbox row as text: id, aggregate_type, aggregate_id, event_type, payload, headers."""


class InvalidEventError(RefusedError):
    """An event that the outbox table or the connector cannot represent exactly."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OutboxEvent:
    """One event of an aggregate, with the aggregate's whole state after it.

    `aggregate_id` becomes the record key and must always be the same text for the same aggregate (a
    UUID is written in canonical form). `payload` None means that the aggregate was deleted. `headers`
    are copied to the record. `event_id` identifies the event for consumers that deduplicate; writing
    the same id twice violates the primary key.
    """

    aggregate_type: str
    aggregate_id: str | UUID
    event_type: str
    # Not in the repr, so that a traceback with local variables shows no business data.
    payload: Mapping[str, Any] | None = field(repr=False)
    headers: Mapping[str, str] | None = field(default=None, repr=False)
    event_id: UUID = field(default_factory=uuid4)

    def to_row(self) -> Row:
        """Return the outbox row. Raises InvalidEventError, which names the field and never its value."""
        return {
            "id": str(_event_id(self.event_id)),
            "aggregate_type": _required_text("aggregate_type", self.aggregate_type),
            "aggregate_id": _required_text("aggregate_id", _plain(self.aggregate_id)),
            "event_type": _required_text("event_type", self.event_type),
            "payload": _payload(self.payload),
            "headers": _headers(self.headers),
        }


def _plain(aggregate_id: str | UUID) -> str:
    return str(aggregate_id) if isinstance(aggregate_id, UUID) else aggregate_id


def _event_id(value: object) -> UUID:
    if isinstance(value, UUID):
        return value
    message = f"event_id must be a UUID, not {type(value).__name__}"
    raise InvalidEventError(message)


def _required_text(name: str, value: object) -> str:
    """Return the value if it is text that PostgreSQL can store, and not empty."""
    if not isinstance(value, str):
        message = f"{name} must be text, not {type(value).__name__}"
        raise InvalidEventError(message)
    if not value:
        message = f"{name} is empty"
        hint = "the aggregate's id is the record key: set it"
        raise InvalidEventError(message, hint if name == "aggregate_id" else "")
    if reason := text_reason(value):
        message = f"{name} {reason}"
        raise InvalidEventError(message)
    return str.__str__(value)  # of a text Enum, the value


def _payload(payload: object) -> str | None:
    if payload is None:
        return None
    if not isinstance(payload, Mapping):
        message = f"payload must be a mapping of the aggregate's fields, or None, not {type(payload).__name__}"
        raise InvalidEventError(message)
    try:
        return to_json(payload)
    except UnfitError as error:
        message = f"{error.location('payload')} {error.reason}"
        raise InvalidEventError(message) from None  # the cause's frames hold the value


def _headers(headers: object) -> str | None:
    """Return headers as JSON text; None without headers, so that the column is NULL."""
    if headers is None or headers == {}:
        return None
    if not isinstance(headers, Mapping):
        message = f"headers must be a mapping of text to text, not {type(headers).__name__}"
        raise InvalidEventError(message)
    for name, value in headers.items():
        _required_text("a header's name", name)
        if name in RESERVED_HEADERS:
            message = f"header {name} is written by the connector and cannot be set"
            raise InvalidEventError(message, "choose another name")
        if not isinstance(value, str):
            message = f"header {name} must be text, not {type(value).__name__}"
            raise InvalidEventError(message)
        if reason := text_reason(value):
            message = f"header {name} {reason}"
            raise InvalidEventError(message)
    return to_json(headers)
