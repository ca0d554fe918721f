"""Why a client gets no answer: what it hears in the background, which the error of the call does not say."""

from __future__ import annotations

from typing import Protocol

from confluent_kafka import KafkaError, KafkaException

# The client goes on trying after each of them, and the call ends with a time-out.
REASONS = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._RESOLVE})


class Polled(Protocol):
    """A client that hands out what it heard when it is polled."""

    def poll(self, timeout: float) -> object:
        """Call the callbacks that wait."""


class Refusals:
    """A client's error_cb: remembers the last refusal (wrong password, wrong certificate, unknown host)."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, error: KafkaError) -> None:
        if error.code() in REASONS:
            self._last = error.str()

    def words(self, client: Polled, error: KafkaException) -> str:
        """What the call said, and what lies behind it."""
        client.poll(0)
        said = str(error.args[0].str())
        return f"{said}; {self._last}" if self._last else said
