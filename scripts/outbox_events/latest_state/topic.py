"""Requests for the identity, the bounds and the settings of the topic of a LatestState."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from outbox_events.errors import ConfigurationError, UnreachableError
from outbox_events.kafka import topic_requests
from outbox_events.kafka.topic_requests import READ_HINT, ClientErrors, unreadable

_DEFAULT_DELETE_RETENTION_S = 24 * 3600.0


@dataclass(frozen=True)
class TopicDescription:
    """Identity and bounds of a topic, by partition number. `ends` are the ends for consumers with read_committed."""

    id: str
    """Differs from the id of an earlier topic with the same name; empty if the cluster assigns no ids."""
    starts: dict[int, int]
    ends: dict[int, int]

    def contains(self, positions: Mapping[int, int]) -> bool:
        """Return whether each position is between the start and the end of an existing partition."""
        return positions.keys() <= self.ends.keys() and all(
            self.starts[number] <= offset <= self.ends[number] for number, offset in positions.items()
        )


class TopicRequests:
    """Sends requests about one topic. Methods raise UnreachableError after `seconds`, or if the topic is missing."""

    def __init__(self, settings: Mapping[str, Any], topic: str, seconds: float) -> None:
        self._topic = topic
        self._seconds = seconds
        self._errors = ClientErrors()
        try:
            client_settings: dict[str, Any] = {"error_cb": self._errors, **settings, "log_level": 0}
            self._admin = AdminClient(client_settings)
        except KafkaException as error:
            raise invalid_settings(error) from None

    def describe(self) -> TopicDescription:
        """Return the identity and the bounds."""
        with self._request():
            topic_id, numbers = topic_requests.describe(self._admin, [self._topic], self._seconds)[self._topic]
            bounds = topic_requests.bounds(self._admin, self._topic, numbers, seconds=self._seconds)
        starts = {number: bound.first for number, bound in bounds.items()}
        return TopicDescription(topic_id, starts, {number: bound.end for number, bound in bounds.items()})

    def delete_retention_s(self) -> float:
        """Return delete.retention.ms in seconds: for this time a reader can still find a tombstone.

        Without the permission to read the settings of the topic, this is Kafka's default.
        """
        with self._request():
            try:
                config = topic_requests.configs(self._admin, [self._topic], seconds=self._seconds)[self._topic]
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise
                return _DEFAULT_DELETE_RETENTION_S
        return int(config["delete.retention.ms"]) / 1000

    @contextmanager
    def _request(self) -> Iterator[None]:
        """Translate the errors of requests."""
        try:
            yield
        except KafkaException as error:
            self._admin.poll(0)  # calls error_cb, which stores the cause
            raise unreadable(self._topic, error.args[0], self._errors.cause) from None
        except TimeoutError:
            message = f"cannot read topic {self._topic}: no response within {self._seconds:g} s"
            raise UnreachableError(message, READ_HINT) from None


def invalid_settings(error: KafkaException) -> ConfigurationError:
    message = f"settings of the Kafka client: {error.args[0].str()}"
    return ConfigurationError(message, "correct the librdkafka properties that are passed to LatestState")
