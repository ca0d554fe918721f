"""Reader of topics: the end of partitions, limits and errors, with scripted results of each consumer call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from confluent_kafka import IsolationLevel, KafkaError, TopicPartition

from outbox_events.errors import UnreachableError, WaitTimeoutError
from outbox_events.kafka import topic_reader
from outbox_events.kafka.topic_reader import read_bounds, read_record, read_records
from outbox_events.kafka.topic_requests import Bounds

END = KafkaError._PARTITION_EOF


@dataclass(frozen=True)
class _Message:
    """Message as a consumer returns it, which is a record, or an error if it has a code."""

    offset_: int
    number: int = 0
    topic_: str = "t"
    code: int | None = None

    def topic(self) -> str:
        return self.topic_

    def partition(self) -> int:
        return self.number

    def offset(self) -> int:
        return self.offset_

    def error(self) -> KafkaError | None:
        return None if self.code is None else KafkaError(self.code)


@dataclass
class _Consumer:
    """Consumer that returns scripted batches, and then `rest` forever."""

    batches: list[list[_Message]]
    rest: list[_Message] = field(default_factory=list)
    assigned: list[tuple[str, int, int]] = field(default_factory=list)
    paused: list[tuple[str, int]] = field(default_factory=list)
    closed: bool = False

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.assigned = [(entry.topic, entry.partition, entry.offset) for entry in partitions]

    def pause(self, partitions: list[TopicPartition]) -> None:
        self.paused += [(entry.topic, entry.partition) for entry in partitions]

    def poll(self, _: float) -> _Message | None:
        self._batch = list(self.batches.pop(0) if self.batches else self.rest)
        return self._batch.pop(0) if self._batch else None

    def consume(self, _: int, timeout: float) -> list[_Message]:
        assert timeout == 0
        return self._batch

    def close(self) -> None:
        self.closed = True


Create = Callable[..., _Consumer]


@pytest.fixture
def consumer_of(monkeypatch: pytest.MonkeyPatch) -> Create:
    def create(*batches: list[_Message], rest: list[_Message] | None = None) -> _Consumer:
        consumer = _Consumer([*batches], rest or [])
        monkeypatch.setattr(topic_reader, "Consumer", lambda _: consumer)
        return consumer

    return create


def test_reads_every_partition_to_its_end(consumer_of: Create) -> None:
    """Records of a partition after its end are not processed while other partitions are read."""
    records = [_Message(3), _Message(4), _Message(0, 1)]
    consumer = consumer_of(
        [], records[:2], [_Message(5), _Message(6, code=END)], [records[2], _Message(2, 1, code=END)]
    )
    actual: list[object] = []
    read_records({}, {"t": {0: Bounds(3, 5), 1: Bounds(0, 2), 2: Bounds(7, 7)}}, actual.append, seconds=5)
    assert actual == records
    assert consumer.assigned == [("t", 0, 3), ("t", 1, 0)]
    assert consumer.paused == [("t", 0), ("t", 1)]
    assert consumer.closed


@pytest.mark.parametrize("last", [_Message(4), _Message(2, code=END), _Message(9, code=END)])
def test_an_end_without_a_record_is_reached(consumer_of: Create, last: _Message) -> None:
    """The offset before the end can belong to a marker, or to an aborted or compacted record."""
    consumer_of([_Message(0), last])
    actual: list[object] = []
    read_records({}, {"t": {0: Bounds(0, 2)}}, actual.append, seconds=5)
    assert actual == [_Message(0)]


def test_the_end_of_the_log_before_the_end_is_awaited(consumer_of: Create) -> None:
    """Committed records may follow after an open transaction."""
    consumer_of([_Message(0), _Message(1, code=END)], [_Message(1), _Message(2)])
    actual: list[object] = []
    read_records({}, {"t": {0: Bounds(0, 3)}}, actual.append, seconds=5)
    assert actual == [_Message(0), _Message(1), _Message(2)]


@pytest.mark.parametrize("is_idle_limit", [False, True])
def test_records_of_partitions_that_are_read_do_not_extend_the_limit(consumer_of: Create, is_idle_limit: bool) -> None:
    consumer_of([_Message(0)], rest=[_Message(1)])
    with pytest.raises(WaitTimeoutError, match="for the end of topic t; last seen: 1 records"):
        read_records({}, {"t": {0: Bounds(0, 1), 1: Bounds(0, 1)}}, [].append, seconds=0.1, is_idle_limit=is_idle_limit)


def test_progress_extends_an_idle_limit(consumer_of: Create) -> None:
    consumer_of(*([_Message(offset)] for offset in range(5)))
    read_records({}, {"t": {0: Bounds(0, 5)}}, [].append, seconds=0, is_idle_limit=True)


def test_stops_as_soon_as_the_caller_has_enough(consumer_of: Create) -> None:
    consumer_of([_Message(0), _Message(1), _Message(2)])
    actual: list[_Message] = []

    def process(message: _Message) -> bool:
        actual.append(message)
        return len(actual) == 2

    read_records({}, {"t": {0: Bounds(0, 9)}, "u": {0: Bounds(0, 9)}}, process, seconds=5)  # type: ignore[arg-type]
    assert actual == [_Message(0), _Message(1)]


def test_reads_the_first_records_of_each_partition(consumer_of: Create) -> None:
    """A partition that has more records is paused. Records that the client has already received are ignored."""
    first, second, third = _Message(0), _Message(1), _Message(0, topic_="u")
    consumer = consumer_of([first, third, second, _Message(2)], [_Message(1, topic_="u")])
    actual: list[object] = []
    ranges = {"t": {0: Bounds(0, 9)}, "u": {0: Bounds(0, 2)}}
    assert read_records({}, ranges, actual.append, limit=2, seconds=5) == {("t", 0)}
    assert actual == [first, third, second, _Message(1, topic_="u")]
    assert consumer.paused == [("t", 0), ("u", 0)]


@pytest.mark.parametrize(("polled", "expected"), [(_Message(7), _Message(7)), (_Message(8), None)])
def test_reads_one_record(consumer_of: Create, polled: _Message, expected: _Message | None) -> None:
    consumer_of([polled])
    assert read_record({}, "t", 0, 7) == expected


@pytest.mark.parametrize(
    "code",
    [
        KafkaError._TRANSPORT,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.OFFSET_OUT_OF_RANGE,
    ],
)
def test_error_is_not_the_end_of_a_partition(consumer_of: Create, code: int) -> None:
    """Otherwise, a topic that was read only partially would be treated as complete."""
    consumer = consumer_of([_Message(0), _Message(0, code=code), _Message(9, code=END)])
    with pytest.raises(UnreachableError, match="cannot read topic t: "):
        read_records({}, {"t": {0: Bounds(0, 9)}}, [].append)
    assert consumer.closed


def test_error_names_the_topics(free_port: int) -> None:
    settings = {"bootstrap.servers": f"127.0.0.1:{free_port}"}
    with pytest.raises(UnreachableError, match=r"cannot read topic library\.author, library\.book: "):
        read_bounds(settings, {"library.book", "library.author"}, IsolationLevel.READ_COMMITTED, seconds=0.3)
