"""The ranges that the tasks of a batch read: every offset once, and similar work for each task."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from outbox_spark.jobs.model import ReadRange
from outbox_spark.kafka.record_reader import MAX_TASK_OFFSETS, SMALL_OFFSETS, task_ranges

OFFSETS = st.integers(0, 3 * MAX_TASK_OFFSETS)


@given(st.lists(st.tuples(OFFSETS, OFFSETS), min_size=1, max_size=6), st.integers(1, 40))
def test_reads_every_offset_once_in_ranges_of_limited_size(partitions: list[tuple[int, int]], parallelism: int) -> None:
    start = {number: first for number, (first, _) in enumerate(partitions)}
    read_range = ReadRange("t", "id", 0, start, {number: sum(pair) for number, pair in enumerate(partitions)})
    bounds = defaultdict(list)
    for partition, lower, upper in task_ranges(read_range, parallelism):
        assert lower <= upper <= lower + MAX_TASK_OFFSETS
        bounds[partition].append((lower, upper))
    assert bounds.keys() == start.keys()
    for partition, ranges in bounds.items():
        ends = [upper for _, upper in ranges]
        assert [start[partition], *ends[:-1]] == [lower for lower, _ in ranges]
        assert ends[-1] == read_range.end[partition]


def test_divides_few_partitions_among_the_cores() -> None:
    end = 100 * SMALL_OFFSETS
    assert len(task_ranges(ReadRange("t", "id", 0, {0: 0}, {0: end}), 8)) == 8
    assert len(task_ranges(ReadRange("t", "id", 0, {0: 0}, {0: SMALL_OFFSETS}), 8)) == 1
    skewed = ReadRange("t", "id", 0, {0: 0, 1: 0}, {0: end * 9 // 10, 1: end // 10})
    assert max(upper - lower for _, lower, upper in task_ranges(skewed, 4)) <= end // 4


def test_keeps_partitions_whole_if_there_are_enough() -> None:
    ends = dict.fromkeys(range(8), 10 * SMALL_OFFSETS)
    assert len(task_ranges(ReadRange("t", "id", 0, dict.fromkeys(ends, 0), ends), 8)) == 8
