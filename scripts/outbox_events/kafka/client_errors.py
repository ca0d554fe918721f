"""Errors of the Kafka client."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException


def kafka_error(error: KafkaException) -> KafkaError:
    """Return the KafkaError of an exception, with its code and whether it is fatal."""
    cause = error.args[0]
    assert isinstance(cause, KafkaError)  # noqa: S101 - for the type checker
    return cause
