"""Encode outbox rows as Kafka records that are equal to those of the transform OutboxRouter (docs/contract.md)."""

from outbox_kit.encoding.encoder import RecordEncoder
from outbox_kit.encoding.row import InvalidRowError, OutboxRow

__all__ = ["InvalidRowError", "OutboxRow", "RecordEncoder"]
