"""Outbox row as the encoder reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """One row of the outbox table. Text is None for SQL NULL.

    `event_time` is UTC with six fraction digits, None if it is not a time of the years 1 to 9999. `additional` has the
    text of the columns for headers, partitions and schema versions, by column.
    """

    id: str | None
    aggregate_type: str | None
    aggregate_id: str | None
    event_type: str | None
    payload: str | bytes | None = field(repr=False)
    headers: str | None = field(default=None, repr=False)
    event_time: str | None = None
    additional: Mapping[str, str | None] = field(default_factory=dict, repr=False)
    payload_is_json: bool = True
