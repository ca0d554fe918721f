"""A topic in memory, which replaces the consumer and the admin client of LatestRecords."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from outbox_events.errors import WaitTimeoutError
from outbox_events.kafka.topic_requests import Bounds
from outbox_kit.kafka import latest_records
from outbox_kit.kafka.client import KafkaClient
from outbox_kit.kafka.latest_records import LatestRecords
from outbox_kit.pipeline import Kafka


@dataclass
class Record:
    """A record with the methods of a consumer's message. The topic assigns the offset."""

    key_bytes: bytes | None
    value_bytes: bytes | None
    sequence: str
    event_id: str = "e"
    number: int = 0
    """Partition."""
    column_headers: tuple[tuple[str, bytes], ...] = ()
    place: int = 0

    def key(self) -> bytes | None:
        return self.key_bytes

    def value(self) -> bytes | None:
        return self.value_bytes

    def partition(self) -> int:
        return self.number

    def offset(self) -> int:
        return self.place

    def headers(self) -> list[tuple[str, bytes]]:
        return [
            ("source_sequence", self.sequence.encode()),
            ("event_id", self.event_id.encode()),
            ("event_time", b"2099-01-01T00:00:00Z"),
            *self.column_headers,
        ]


class FakeTopic:
    """The only topic of the cluster. After each read, the next of `batches` is appended to its records."""

    kafka = Kafka(bootstrap_servers="127.0.0.1:1")

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, partitions: int = 1) -> None:
        self.records: list[Record] = []
        self.batches: list[list[Record]] = []
        self.starts: list[dict[int, int]] = []
        self._id = 1
        self._first_offsets = dict.fromkeys(range(partitions), 0)
        monkeypatch.setattr(KafkaClient, "bounds", lambda *_: self.bounds(""))
        monkeypatch.setattr(KafkaClient, "topic_id", lambda *_: self.topic_id(""))
        monkeypatch.setattr(KafkaClient, "offsets_at", lambda _, *arguments: self.offsets_at(*arguments))
        monkeypatch.setattr(latest_records, "read_records", self.read_records)

    def offsets_at(self, _: str, numbers: Iterable[int], seconds: float) -> dict[int, int]:
        """The record at offset n was written at the Unix time n."""
        ends = {number: bound.end for number, bound in self.bounds("").items()}
        return {number: round(seconds) if seconds < ends[number] else -1 for number in numbers}

    def latest_records(self, **limits: Any) -> LatestRecords:  # noqa: ANN401 - arguments of LatestRecords
        return LatestRecords(self, "library.book", **limits)  # type: ignore[arg-type]

    def append(self, *records: Record) -> None:
        for record in records:
            record.place = self.bounds("")[record.number].end
            self.records.append(record)

    def recreate(self, *, has_id: bool = True) -> None:
        self._id += has_id
        self._first_offsets = dict.fromkeys(self._first_offsets, 0)
        self.records = []

    def delete_first_record(self) -> None:
        self._first_offsets[self.records.pop(0).number] += 1

    def topic_id(self, _: str) -> str:
        return str(self._id)

    def bounds(self, _: str) -> dict[int, Bounds]:
        counts = Counter(record.number for record in self.records)
        return {number: Bounds(first, first + counts[number]) for number, first in self._first_offsets.items()}

    def read_records(
        self,
        _: object,
        ranges: Mapping[str, Mapping[int, Bounds]],
        process: Callable[[Any], None],
        *,
        seconds: float,
    ) -> None:
        """Stand in for topic_reader.read_records."""
        [bounds] = ranges.values()
        starts = {number: bound.first for number, bound in bounds.items() if bound.first < bound.end}
        self.starts.append(starts)
        if starts and not seconds:
            raise WaitTimeoutError("waited 0 s")
        for record in [entry for entry in self.records if entry.place >= starts.get(entry.number, 2**63)]:
            process(record)
        if self.batches:
            self.append(*self.batches.pop(0))
