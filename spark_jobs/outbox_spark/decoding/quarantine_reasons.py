"""Reasons why a record is in quarantine. These values must not change, because users' queries depend on them."""

from __future__ import annotations

from outbox_spark.decoding.columns import KEY_COLUMN


class Reason:
    """Values of the column `reason` of the quarantine table."""

    NO_KEY = "no-key"
    KEY_NOT_TEXT = "key-not-utf8"
    KEY_UNREADABLE = "key-unreadable"
    """The key is not valid for `key_format`, or is a JSON value other than a string or an integer."""
    NOT_WIRE_FORMAT = "not-wire-format"
    UNKNOWN_SCHEMA_ID = "unknown-schema-id"
    UNDECODABLE = "undecodable"
    INVALID = "invalid"
    """Followed by `:<column>`. The record was decoded, but the value is not valid for the column's type."""

    INVALID_KEY = f"{INVALID}:{KEY_COLUMN}"
    INVALID_SEQUENCE = f"{INVALID}:_sequence"
    INVALID_TIMESTAMP = f"{INVALID}:_timestamp"


REASONS_WITHOUT_ROW = (
    Reason.NO_KEY,
    Reason.KEY_NOT_TEXT,
    Reason.KEY_UNREADABLE,
    Reason.INVALID_KEY,
    Reason.INVALID_SEQUENCE,
)
"""Reasons why a record cannot be assigned to a row: the key is unreadable, or the version is unknown."""
