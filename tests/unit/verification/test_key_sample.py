"""Keys that have a state in a wrong partition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from confluent_kafka import Message
from tests.unit.fake_kafka import FakeKafka

from outbox_events.contract.partitioner import partition_of
from outbox_events.kafka.topic_requests import Bounds
from outbox_kit.deployment import Deployment
from outbox_kit.kafka.state import Topic
from outbox_kit.verification import key_sample
from outbox_kit.verification.key_sample import MAX_RECORDS, MAX_SECONDS, KeySample, sample_keys

BOOK = Topic("library.book", 8, {}, "states", aggregate_type="book")
AUTHOR = Topic("library.author", 1, {}, "states", aggregate_type="author")
KEYS = [str(number).encode() for number in range(100)]
MOVED_KEYS = [key for key in KEYS if partition_of(key, 4) != partition_of(key, 8)]


class _Record:
    """Record as the consumer returns it."""

    def __init__(
        self, key: bytes | None, partition: int, value: bytes | None = b"state", sequence: bytes | None = b"1"
    ) -> None:
        self._key, self._partition, self._value, self._sequence = key, partition, value, sequence

    def topic(self) -> str:
        return BOOK.name

    def key(self) -> bytes | None:
        return self._key

    def partition(self) -> int:
        return self._partition

    def value(self) -> bytes | None:
        return self._value

    def offset(self) -> int:
        return 7

    def headers(self) -> list[tuple[str, bytes | None]]:
        return [] if self._sequence is None else [("source_sequence", self._sequence)]


def misplaced(*records: _Record, has_partition_field: bool = False, incomplete: int | None = None) -> int:
    sample = KeySample(BOOK, has_partition_field)
    for record in records:
        sample.add(cast("Message", record))
    if incomplete is not None:
        sample.incomplete_partitions.add(incomplete)
    return sample.misplaced_count()


def test_keys_of_a_topic_that_was_not_grown_are_placed() -> None:
    assert misplaced(*(_Record(key, partition_of(key, 8)) for key in KEYS)) == 0


def test_finds_the_keys_that_growth_moves() -> None:
    assert MOVED_KEYS
    assert misplaced(*(_Record(key, partition_of(key, 4)) for key in KEYS)) == len(MOVED_KEYS)


def test_a_tombstone_in_the_new_partition_does_not_delete_the_earlier_state() -> None:
    key = MOVED_KEYS[0]
    assert misplaced(_Record(key, partition_of(key, 4)), _Record(key, partition_of(key, 8), None)) == 1


def test_a_deleted_state_is_not_misplaced() -> None:
    """Compaction removes a state that precedes its tombstone in the same partition."""
    wrong = (partition_of(b"1", 8) + 1) % 8
    assert misplaced(_Record(b"1", wrong), _Record(b"1", wrong, None), _Record(None, 0)) == 0


@pytest.mark.parametrize(
    ("key", "has_field"), [(b"1", True), (b"\0\0\0\0\7\x021", False)], ids=["partition_field", "Avro key"]
)
def test_compares_partitions_that_the_key_does_not_determine(key: bytes, has_field: bool) -> None:
    assert [misplaced(_Record(key, number), has_partition_field=has_field) for number in range(8)] == [0] * 8
    records = _Record(key, 1), _Record(key, 2)
    assert misplaced(*records, has_partition_field=has_field) == 1
    assert misplaced(*records, _Record(key, 1, None), has_partition_field=has_field) == 0
    assert misplaced(*records, has_partition_field=has_field, incomplete=1) == 0, "a tombstone may follow"


def test_names_records_without_a_sequence_unless_all_lack_it() -> None:
    sample, foreign = KeySample(BOOK, has_partition_field=False), _Record(b"1", 2, sequence=None)
    sample.add(cast("Message", foreign))
    assert sample.unsequenced.keys == {}
    sample.add(cast("Message", _Record(b"1", 2)))
    assert sample.unsequenced.keys == {(2, 7): "1"}


def test_all_partitions_together_are_read_up_to_the_limits(
    deployed: Callable[..., Deployment], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only topics of states are sampled. The limit is divided by the number of partitions that have records."""
    kafka, read = FakeKafka({}), list[dict[str, Any]]()
    kafka.bounds_by_topic = {
        BOOK.name: {number: Bounds(number, number + 10_000) for number in range(7)} | {7: Bounds(3, 3)},
        AUTHOR.name: {0: Bounds(5, 5)},
        "dead-letter": {0: Bounds(0, 10_000)},
    }

    def read_records(
        _: object, ranges: dict[str, dict[int, Bounds]], process: Callable[[_Record], None], **limits: float
    ) -> set[tuple[str, int]]:
        read.append({"ranges": ranges, **limits})
        process(_Record(MOVED_KEYS[0], partition_of(MOVED_KEYS[0], 4)))
        return {(BOOK.name, 0)}

    monkeypatch.setattr(Deployment, "kafka", kafka)
    monkeypatch.setattr(key_sample, "read_records", read_records)
    other = Topic("dead-letter", 1, {}, "no states")
    samples = sample_keys(deployed(), [BOOK, AUTHOR, other])
    assert {name: entry.misplaced_count() for name, entry in samples.items()} == {BOOK.name: 1, AUTHOR.name: 0}
    assert [name for name, entry in samples.items() if entry.is_empty] == [AUTHOR.name]
    ranges = {name: kafka.bounds_by_topic[name] for name in (BOOK.name, AUTHOR.name)}
    assert read == [{"ranges": ranges, "limit": MAX_RECORDS // 7, "seconds": MAX_SECONDS}]
    assert MAX_RECORDS <= 10_000
    assert MAX_SECONDS <= 10
