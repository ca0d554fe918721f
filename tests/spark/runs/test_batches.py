"""Division of a range into consecutive batches of limited size, for any density of records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox_spark.jobs.model import ReadRange
from outbox_spark.runs.batches import Batches


def range_of(ends: list[int], starts: list[int] | None = None) -> ReadRange:
    first = starts or [0] * len(ends)
    return ReadRange("t", "id", 0, dict(enumerate(first)), dict(enumerate(ends)))


@given(
    st.lists(st.integers(0, 500), min_size=1, max_size=5),
    st.integers(1, 200),
    st.lists(st.floats(0, 1), min_size=1, max_size=10),
)
def test_batches_are_consecutive_and_cover_the_range(ends: list[int], max_records: int, densities: list[float]) -> None:
    read_range = range_of(ends)
    batches = Batches(read_range, max_records)
    position = dict(read_range.start)
    for number in range(10_000):
        batch = batches.next_batch()
        if batch is None:
            break
        assert batch.start == position
        assert batch.offset_count > 0
        position = dict(batch.end)
        batches.adapt(int(batch.offset_count * densities[number % len(densities)]))
    assert position == read_range.end
    assert batches.share_done == 1


def test_batches_without_gaps_respect_the_limit() -> None:
    batches = Batches(range_of([1000, 10]), 100)
    while (batch := batches.next_batch()) is not None:
        # Rounded up for each partition, so that every partition advances.
        assert batch.offset_count <= 100 + 2
        batches.adapt(batch.offset_count)


def test_uses_larger_batches_for_a_compacted_topic() -> None:
    """If one record in fifty remains after compaction, batches grow to their limit."""
    batches = Batches(range_of([1_000_000]), 1000)
    counts = []
    while (batch := batches.next_batch()) is not None:
        counts.append(batch.offset_count // 50)
        batches.adapt(counts[-1])
    assert counts[0] == 20
    assert max(counts) == 1000
    assert len(counts) < 30


def test_uses_smaller_batches_after_a_sparse_range() -> None:
    batches = Batches(range_of([10_000_000]), 100)
    for _ in range(5):
        sparse = batches.next_batch()
        batches.adapt(1)
    assert sparse is not None
    assert sparse.offset_count > 10_000
    dense = batches.next_batch()
    assert dense is not None
    batches.adapt(dense.offset_count)
    after = batches.next_batch()
    assert after is not None
    assert after.offset_count == 100


@pytest.mark.parametrize("starts", [[5, 9], [0, 9]])
def test_reports_the_completed_fraction(starts: list[int]) -> None:
    batches = Batches(range_of([5, 9], starts), 2)
    assert batches.share_done == (1.0 if starts == [5, 9] else 0.0)
    assert (batches.next_batch() is None) == (starts == [5, 9])
