"""Convert outbox events to rows. Events are validated before any SQL is executed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from outbox_events.contract.headers import CONTRACT_HEADERS
from outbox_events.errors import RefusedError
from outbox_events.sending.outbox_table import COLUMNS, OutboxTable
from outbox_events.sending.values import NotEncodableError, invalid_text_reason, to_json

RESERVED_HEADERS = frozenset(CONTRACT_HEADERS)
"""Headers that the connector writes. The column `headers` must not contain them."""

Row = dict[str, Any]
"""Values (text or None) by contract column: id, aggregate_type, aggregate_id, event_type, payload, headers."""


class InvalidEventError(RefusedError):
    """The outbox table or the connector cannot represent the event exactly."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OutboxEvent:
    """One event of an aggregate, with the full state of the aggregate after the event.

    `aggregate_id` becomes the record key. Always use the same text for the same aggregate (a UUID is written in
    canonical form). If `payload` is None, the aggregate was deleted. `headers` are copied to the record. `event_id`
    identifies the event for consumers that deduplicate. Inserting the same id twice violates the primary key.
    `additional_columns` maps columns that the pipeline file defines (partition_field, schema_version_column,
    header_columns) to their values.
    """

    aggregate_type: str
    aggregate_id: str | UUID
    event_type: str
    # The repr omits this field, so that a traceback with local variables does not show business data.
    payload: Mapping[str, Any] | None = field(repr=False)
    headers: Mapping[str, str] | None = field(default=None, repr=False)
    event_id: UUID = field(default_factory=uuid4)
    additional_columns: Mapping[str, Any] | None = field(default=None, repr=False)

    def to_row(self) -> Row:
        """Return the outbox row. Raises InvalidEventError, whose message names the field but never the value."""
        if not isinstance(self.event_id, UUID):
            raise InvalidEventError(f"event_id must be a UUID, not {type(self.event_id).__name__}")
        aggregate_id = str(self.aggregate_id) if isinstance(self.aggregate_id, UUID) else self.aggregate_id
        return {
            "id": str(self.event_id),
            "aggregate_type": _required_text("aggregate_type", self.aggregate_type),
            "aggregate_id": _required_text("aggregate_id", aggregate_id),
            "event_type": _required_text("event_type", self.event_type),
            "payload": _payload_json(self.payload),
            "headers": _headers_json(self.headers),
        }

    def additional_values(self, table: OutboxTable) -> Row:
        """Map additional columns to their values. Raises InvalidEventError for a column that `emit` itself writes."""
        written = {table.column(key) for key in COLUMNS}
        values = dict(self.additional_columns or {})
        for name, value in values.items():
            _required_text("the name of an additional column", name)
            if name in written:
                raise InvalidEventError(f"column {name} cannot be an additional column: emit writes it")
            if isinstance(value, str):
                _valid_text(f"column {name}", value)
        return values


def _valid_text(name: str, value: object) -> str:
    """Return the value as str. Raises InvalidEventError if it is not a text that PostgreSQL can store."""
    if not isinstance(value, str):
        raise InvalidEventError(f"{name} must be text, not {type(value).__name__}")
    if reason := invalid_text_reason(value):
        raise InvalidEventError(f"{name} {reason}")
    return str.__str__(value)  # str() of a member of a str Enum would return Class.MEMBER


def _required_text(name: str, value: object) -> str:
    if value == "":
        hint = "set aggregate_id, which becomes the record key"
        raise InvalidEventError(f"{name} is empty", hint if name == "aggregate_id" else "")
    return _valid_text(name, value)


def _payload_json(payload: object) -> str | None:
    if payload is None:
        return None
    if not isinstance(payload, Mapping):
        message = f"payload must be a mapping of the aggregate's fields, or None, not {type(payload).__name__}"
        raise InvalidEventError(message)
    try:
        return to_json(payload)
    except NotEncodableError as error:
        # Raise the error without its cause, because the cause's stack frames contain the value.
        raise InvalidEventError(f"{error.location('payload')} {error.reason}") from None


def _headers_json(headers: object) -> str | None:
    """Return the headers as JSON text. If there are none, return None, so that the column is NULL."""
    if headers is None or headers == {}:
        return None
    if not isinstance(headers, Mapping):
        raise InvalidEventError(f"headers must be a mapping of text to text, not {type(headers).__name__}")
    for name, value in headers.items():
        _required_text("a header's name", name)
        if name in RESERVED_HEADERS:
            message = f"header {name} is written by the connector and cannot be set"
            raise InvalidEventError(message, "choose another name")
        _valid_text(f"header {name}", value)
    return to_json(headers)
