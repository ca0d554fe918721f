"""Read all partitions of a topic without a consumer group, and determine how far the topic has been read."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from outbox_events import limited_calls
from outbox_events.errors import ConfigurationError, UnreachableError
from outbox_events.kafka import topic_requests
from outbox_events.kafka.topic_reader import READER_SETTINGS, REPORT_END
from outbox_events.kafka.topic_requests import READ_HINT, READ_UNCOMMITTED, ClientErrors, unreadable
from outbox_events.latest_state.states import States

_DEFAULT_DELETE_RETENTION_S = 24 * 3600.0
BATCH = 10_000
REQUEST_S = 5.0
MIN_GAP_S = 60.0
"""Interruptions shorter than this do not cause a rebuild, even if tombstones are removed sooner."""


@dataclass(frozen=True)
class TopicDescription:
    """Id of a topic, and the bounds of its partitions by number. `ends` contains the high watermarks."""

    id: str
    """A recreated topic gets a new id. The id is empty if the cluster does not assign topic ids."""
    starts: dict[int, int]
    ends: dict[int, int]

    def contains(self, positions: Mapping[int, int]) -> bool:
        """Return whether each position is between the start and the end of an existing partition."""
        return positions.keys() <= self.ends.keys() and all(
            self.starts[number] <= offset <= self.ends[number] for number, offset in positions.items()
        )


class TopicRequests:
    """Sends requests about one topic. They raise UnreachableError after `seconds` or if the topic does not exist."""

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
        """Return the id and bounds of the topic."""
        with self._request():
            topic_id, numbers = topic_requests.describe(self._admin, [self._topic], self._seconds)[self._topic]
            # Behind an open transaction, committed records are not readable yet, but a newer state can be among them.
            bounds = topic_requests.bounds(self._admin, self._topic, numbers, READ_UNCOMMITTED, self._seconds)
        starts = {number: bound.first for number, bound in bounds.items()}
        return TopicDescription(topic_id, starts, {number: bound.end for number, bound in bounds.items()})

    def delete_retention_s(self) -> float:
        """Return the topic's delete.retention.ms in seconds. Readers can still find a tombstone for this time.

        Return Kafka's default if the client is not allowed to read the settings of the topic.
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
        """Raise errors of requests as UnreachableError."""
        try:
            yield
        except KafkaException as error:
            self._admin.poll(0)  # runs error_cb, which stores the cause
            raise unreadable(self._topic, error.args[0], self._errors.cause) from None
        except TimeoutError:
            message = f"cannot read topic {self._topic}: no response within {self._seconds:g} s"
            raise UnreachableError(message, READ_HINT) from None


def invalid_settings(error: KafkaException) -> ConfigurationError:
    message = f"settings of the Kafka client: {error.args[0].str()}"
    return ConfigurationError(message, "correct the librdkafka properties that are passed to LatestState")


class TopicReader:
    """Applies the records of a topic to `states`. Only one thread at a time may use it.

    `check` requests the ends of the partitions. At these ends, it has read all records written before the check.
    """

    def __init__(self, settings: Mapping[str, Any], topic: str, states: States) -> None:
        self.topic = topic
        self._states = states
        self.positions: dict[int, int] = {}
        """Maps each partition to the offset of its next record."""
        self.topic_id = ""
        self.read_until: float | None = None
        """All records written before this time (seconds since 1970) have been read. None until an end is reached."""
        self.restarts = 0
        self.max_gap_s = 0.0
        """Time after which unread tombstones might have been removed."""
        self._received_at = 0.0
        self._resumed_from: float | None = None
        self._awaited: tuple[float, dict[int, int]] | None = None  # time and ends of the last check
        self._must_restart = False
        self.requests = TopicRequests(settings, topic, REQUEST_S)
        try:
            self._consumer = Consumer(
                {
                    "log_level": 0,
                    **settings,
                    # required by librdkafka but not used, because the reader assigns partitions and never commits
                    "group.id": f"outbox-latest-state-{uuid4().hex}",
                    "auto.offset.reset": "error",
                    **READER_SETTINGS,
                    **REPORT_END,
                }
            )
        except KafkaException as error:
            raise invalid_settings(error) from None

    def resume(
        self, description: TopicDescription, positions: Mapping[int, int], read_until: float | None = None
    ) -> None:
        """Continue at the positions of a snapshot that contains all records written before `read_until`.

        Partitions without a position are read from their beginning.
        """
        self.topic_id = description.id
        self._received_at, self._resumed_from = time.time(), read_until
        if positions and description.starts.keys() - positions.keys():
            self._states.partition_epoch += 1
        starts = {**dict.fromkeys(description.starts, OFFSET_BEGINNING), **positions}
        self._consumer.assign([TopicPartition(self.topic, number, offset) for number, offset in starts.items()])
        self.positions = {**description.starts, **positions}

    def restart(self, description: TopicDescription) -> None:
        """Discard all states, and read the topic from its beginning."""
        self.read_until, self._awaited, self._must_restart = None, None, False
        self._states.clear()  # after read_until is reset, so that no thread mistakes the empty states for the latest
        self.resume(description, {})

    def restart_at_check(self) -> None:
        """At the next check, restart at the beginning of the topic. `read_until` is None until the end is reached."""
        self.read_until, self._awaited, self._must_restart = None, None, True

    def check(self) -> None:
        """Request the topic's id and ends, add new partitions, and restart if the topic must be read again.

        Raises UnreachableError.
        """
        checked_at, description = time.time(), self.requests.describe()
        if self._is_other(description):
            self.restarts += 1
            self.restart(description)
        added = sorted(description.starts.keys() - self.positions.keys())
        if added:
            self._states.partition_epoch += 1
            self._consumer.incremental_assign([TopicPartition(self.topic, n, OFFSET_BEGINNING) for n in added])
            self.positions |= {number: description.starts[number] for number in added}
        if self._awaited is None or added:
            self._awaited = checked_at, description.ends
        self._confirm()

    def poll(self, seconds: float) -> int:
        """Apply the records that arrive within `seconds`. Return their number. Raises UnreachableError."""
        messages: list[Message] = []
        try:
            first = self._consumer.poll(seconds)
            if first is None:
                return 0
            messages.append(first)
            messages += self._consumer.consume(BATCH - 1, timeout=0)  # with a timeout, it waits for a full batch
            others = self._states.apply(messages, self.positions)
        except BaseException as error:
            if messages:
                self.restart_at_check()  # the consumer does not return these records again
            if isinstance(error, KafkaException):
                raise unreadable(self.topic, error.args[0]) from None
            raise
        if len(others) < len(messages):
            self._received_at = time.time()
        errors = [error for error in map(self._process, others) if error is not None]
        self._confirm()
        if errors:  # raised after all messages are processed, because none of them is received again
            raise unreadable(self.topic, errors[0])
        return len(messages) - len(others)

    @property
    def unread(self) -> dict[int, int]:
        """Maps each partition to the number of unread offsets up to the end at the last check. Zeros are omitted."""
        awaited = self._awaited  # another thread might set it to None
        if awaited is None:
            return {}
        left = {number: end - self.positions.get(number, 0) for number, end in awaited[1].items()}
        return {number: count for number, count in left.items() if count > 0}

    def close(self) -> None:
        """Close the consumer. Raises ClientStuckError if it does not respond."""
        limited_calls.call("close the consumer", self._consumer.close, seconds=REQUEST_S)

    def _is_other(self, description: TopicDescription) -> bool:
        """Return whether the topic was recreated, or whether records might have been deleted before they were read."""
        if self._must_restart or description.id != self.topic_id:
            return True
        # The first read can take longer than tombstones are kept, but it must make progress.
        gap_s = time.time() - (self.read_until or self._resumed_from or self._received_at)
        return gap_s > max(MIN_GAP_S, self.max_gap_s) or not description.contains(self.positions)

    def _process(self, message: Message) -> KafkaError | None:
        """Handle a message for the end of a partition or for an invalid offset. Return any other error."""
        error, number, offset = message.error(), message.partition(), message.offset()
        if error is None:
            return None
        if error.code() == KafkaError._PARTITION_EOF and number is not None and offset is not None:
            # Transaction markers occupy offsets too, so the position can be lower than the end.
            self.positions[number] = max(self.positions.get(number, 0), offset)
        elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            self.restart_at_check()
        else:
            return error
        return None

    def _confirm(self) -> None:
        """Set `read_until` to the time of the last check if the ends of that check are reached."""
        if self._awaited is not None and not self.unread:
            self.read_until, self._awaited = self._awaited[0], None
