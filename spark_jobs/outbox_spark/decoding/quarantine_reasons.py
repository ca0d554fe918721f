"""Why a record is in quarantine; part of the interface, so the words do not change."""

from __future__ import annotations

from outbox_spark.decoding.columns import KEY_COLUMN


class Reason:
    """Words of the column `reason` of the quarantine."""

    NO_KEY = "no-key"
    KEY_NOT_TEXT = "key-not-utf8"
    KEY_UNREADABLE = "key-unreadable"
    """Not the JSON that `key_format` says, or JSON that names nothing."""
    NOT_WIRE_FORMAT = "not-wire-format"
    UNKNOWN_SCHEMA_ID = "unknown-schema-id"
    UNDECODABLE = "undecodable"
    INVALID = "invalid"
    """Followed by `:<column>`: decoded, but not a value of the column's type."""


UNNAMED = (Reason.NO_KEY, Reason.KEY_NOT_TEXT, Reason.KEY_UNREADABLE, f"{Reason.INVALID}:{KEY_COLUMN}")
"""Reasons of records that belong to no row: their key is what cannot be read."""
