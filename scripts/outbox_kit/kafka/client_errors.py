"""Background errors of librdkafka clients, which the error of a call does not contain."""

from __future__ import annotations

from typing import Protocol

from confluent_kafka import KafkaError, KafkaException

# The client retries after each of these, and the call ends with a time-out.
CAUSES = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._RESOLVE})


class Pollable(Protocol):
    """A client that runs its callbacks when it is polled."""

    def poll(self, timeout: float) -> object: ...


class ClientErrors:
    """An error_cb that keeps the last cause: wrong password, wrong certificate, unknown host."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, error: KafkaError) -> None:
        if error.code() in CAUSES:
            self._last = error.str()

    def describe(self, client: Pollable, error: KafkaException) -> str:
        """Return the error of a call with its cause."""
        client.poll(0)
        message = str(error.args[0].str())
        return f"{message}; {self._last}" if self._last else message
