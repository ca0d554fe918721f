"""Ranges that the next run reads, and committed offsets that do not match the topic."""

from __future__ import annotations

import pytest

from outbox_events.errors import RefusedError
from outbox_spark.jobs.model import Ordering, ReadRange, TableProgress
from outbox_spark.kafka.offset_ranges import TopicDescription, resolve_range


def topic(earliest: dict[int, int], latest: dict[int, int], topic_id: str = "id-1") -> TopicDescription:
    return TopicDescription("lib.book", topic_id, earliest, latest)


def committed(offsets: dict[int, int], ordering: Ordering | None = Ordering.SEQUENCE, epoch: int = 0) -> TableProgress:
    return TableProgress("lib.book", "id-1", epoch, ordering, offsets, run=3)


def test_first_run_reads_everything() -> None:
    read_range = resolve_range(topic({0: 5, 1: 0}, {0: 9, 1: 0}), None)
    assert read_range == ReadRange("lib.book", "id-1", 0, {0: 5, 1: 0}, {0: 9, 1: 0})
    assert not read_range.is_empty


def test_next_run_starts_at_the_progress_of_the_table() -> None:
    read_range = resolve_range(topic({0: 0, 1: 0}, {0: 9, 1: 4}), committed({0: 7, 1: 4}, epoch=2))
    assert (read_range.start, read_range.end, read_range.partition_epoch) == ({0: 7, 1: 4}, {0: 9, 1: 4}, 2)


def test_reads_nothing_without_new_records() -> None:
    assert resolve_range(topic({0: 0}, {0: 9}), committed({0: 9})).is_empty


def test_reads_new_partitions_from_the_start_in_a_new_epoch() -> None:
    read_range = resolve_range(topic({0: 0, 1: 0}, {0: 9, 1: 2}), committed({0: 9}))
    assert (read_range.start, read_range.partition_epoch) == ({0: 9, 1: 0}, 1)


@pytest.mark.parametrize(
    ("now", "before", "message"),
    [
        (topic({0: 0}, {0: 9}, "id-2"), committed({0: 7}), "deleted and recreated: its id is id-2"),
        (
            topic({0: 0}, {0: 9}),
            committed({0: 7, 1: 3}),
            "has 1 partitions, but the table has stored offsets for 2; partition 1 does not exist",
        ),
        (
            topic({0: 0}, {0: 9}),
            committed({0: 12}),
            "partition 0 ends at offset 9, but .* committed offset is 12",
        ),
        (
            topic({0: 8}, {0: 9}),
            committed({0: 7}),
            "partition 0 starts at offset 8, but .* between these offsets were deleted",
        ),
        (
            topic({0: 0, 1: 0}, {0: 9, 1: 1}),
            committed({0: 7}, Ordering.OFFSET),
            "grew from 1 to 2 partitions, and its records have no source_sequence",
        ),
    ],
)
def test_rejects_offsets_that_do_not_match_the_topic(
    now: TopicDescription, before: TableProgress, message: str
) -> None:
    with pytest.raises(RefusedError, match=message) as caught:
        resolve_range(now, before)
    assert caught.value.hint


def test_rejects_another_topic() -> None:
    other = TopicDescription("lib.author", "id-1", {0: 0}, {0: 1})
    with pytest.raises(RefusedError, match=r"lib\.book, not from lib\.author"):
        resolve_range(other, committed({0: 0}))


def test_progress_round_trip() -> None:
    progress = committed({1: 2, 0: 2**40}, Ordering.OFFSET, epoch=1)
    assert TableProgress.from_json(progress.to_json(), "here") == progress
    unread = committed({0: 0}, None)
    assert TableProgress.from_json(unread.to_json(), "here") == unread
