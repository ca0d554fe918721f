"""Encoding of outbox rows as Kafka records. The transform OutboxRouter returns equal records (docs/contract.md)."""

from outbox_kit.encoding.encoder import RecordEncoder
from outbox_kit.encoding.row import InvalidRowError, OutboxRow

__all__ = ["InvalidRowError", "OutboxRow", "RecordEncoder"]
