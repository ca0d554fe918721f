"""Store which dead letters are acknowledged, in a compacted topic of the pipeline, where they do not expire."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import Message

from outbox_events.errors import RefusedError
from outbox_events.kafka.record import Record
from outbox_events.kafka.topic_reader import read_records
from outbox_kit.kafka.client import KafkaClient, client_settings, send_records


@dataclass(frozen=True)
class Acknowledged:
    """Acknowledged offsets of a partition: all offsets below `upto`, and the offsets in `single`."""

    upto: int = 0
    single: frozenset[int] = frozenset()

    def __contains__(self, offset: int) -> bool:
        return offset < self.upto or offset in self.single

    def add(self, offsets: Iterable[int], unacknowledged: Iterable[int], end: int) -> Acknowledged:
        """Return the acknowledged offsets plus `offsets`. `unacknowledged` has the offsets of the other dead letters.

        `upto` is the first offset of them, or else `end`, because transaction markers also have offsets.
        """
        upto = max(min(unacknowledged, default=end), self.upto)
        added = self.single.union(offsets)
        return Acknowledged(upto, frozenset(offset for offset in added if offset >= upto))

    def count_below(self, first: int) -> int:
        """Return the number of offsets below `first` that are not acknowledged."""
        return max(0, first - self.upto - sum(offset < first for offset in self.single))


@dataclass(frozen=True)
class Acknowledgements:
    """Acknowledged dead letters of `topic`, stored in the pipeline's topic `stored_in`.

    The id of `topic` is part of the key, so that a topic that is created again has no acknowledged dead letters.
    """

    client: KafkaClient
    stored_in: str
    topic: str

    def read(self) -> dict[int, Acknowledged]:
        """Return the acknowledged offsets by partition. Raises UnreachableError, RejectedError, WaitTimeoutError."""
        if self.stored_in not in self.client.topics():
            return {}
        prefix, found = self._prefix(), dict[int, Acknowledged]()

        def collect(message: Message) -> None:
            key, value = message.key(), message.value()
            if isinstance(key, bytes) and isinstance(value, bytes) and key.startswith(prefix):
                entry = json.loads(value)
                found[int(key.removeprefix(prefix))] = Acknowledged(entry["upto"], frozenset(entry["single"]))

        bounds = self.client.bounds(self.stored_in)
        read_records(client_settings(self.client.kafka), {self.stored_in: bounds}, collect)
        return found

    def write(self, acknowledged: Mapping[int, Acknowledged]) -> None:
        """Replace the acknowledged offsets of the partitions. Raises RefusedError if the topic does not exist."""
        if self.stored_in not in self.client.topics():
            raise RefusedError(f"topic {self.stored_in} does not exist", "run `outbox apply`, which creates it")
        prefix = self._prefix()
        records = [
            Record(
                topic=self.stored_in,
                partition=0,
                key=prefix + str(number).encode(),
                value=json.dumps({"upto": entry.upto, "single": sorted(entry.single)}).encode(),
            )
            for number, entry in acknowledged.items()
        ]
        send_records(self.client.kafka, records)

    def _prefix(self) -> bytes:
        return f"{self.topic}/{self.client.topic_id(self.topic)}/".encode()
