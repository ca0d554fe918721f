"""Encode JSON as Avro, and validate Avro bodies."""

from outbox_kit.encoding.avro.encoder import AvroEncoder

__all__ = ["AvroEncoder"]
