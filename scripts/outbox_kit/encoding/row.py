"""Define the input row of the encoder, and the errors for rows that cannot be encoded.

The error messages equal those of OutboxRouter, and never contain values from the row.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

MAX_MESSAGE_LENGTH = 1000
IDENTIFIER = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """One row of the outbox table. A text field is None for SQL NULL.

    `event_time` is in UTC with six fraction digits, or None if the year is not 1 to 9999. `additional` contains
    the text of the columns for headers, partitions and schema versions, by column name.
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


class InvalidRowError(Exception):
    """A row violates the contract. `reason` is a code from docs/smt-payloads.md, such as payload-invalid."""

    def __init__(self, reason: str, message: str) -> None:
        text = message if len(message) <= MAX_MESSAGE_LENGTH else f"{message[:MAX_MESSAGE_LENGTH]}..."
        super().__init__(text)
        self.reason = reason
        self.message = text


class PayloadError(Exception):
    """A payload does not fit a schema. Each container that the error passes through adds a step to the path."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = ""

    def within(self, step: str) -> PayloadError:
        """Prepend `step` to the path: a field name, `[3]` for an array item, `{}` for a map value. Return the error."""
        separator = "" if not self.path or self.path[0] in "[{" else "."
        self.path = f"{step}{separator}{self.path}"
        return self

    @property
    def message(self) -> str:
        return f"{self.path or 'payload'}: {self.problem}"


def quoted_name(name: str | None) -> str:
    """Return the name in quotes if it is an identifier. Otherwise return only its length, because it can be data."""
    if name is None:
        return "null"
    return f'"{name}"' if IDENTIFIER.fullmatch(name) else f"(a name of {utf16_length(name)} characters)"


def utf16_length(text: str) -> int:
    """Return the number of UTF-16 code units, which is the length of the text in Java."""
    return len(text) + sum(character > "\uffff" for character in text)


def require_text(text: str | None, reason: str, description: str) -> str:
    """Return the text. Raises InvalidRowError if the text is null or empty."""
    if not text:
        raise InvalidRowError(reason, f"{description} is null or empty")
    return text
