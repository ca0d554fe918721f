"""Rows that may be deleted and partitions that may be dropped, depending on rows and records."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.delivery.samples import ROWS, dead_letters, proof, record

from outbox_kit.delivery.outbox_rows import StoredRow
from outbox_kit.delivery.proof import Proof
from outbox_kit.pruning.partitions import Content, Partition
from outbox_kit.pruning.prune import Reason, decide
from outbox_kit.pruning.prune_partitions import PartitionPlan


def reasons(rows: list[StoredRow], of: Proof, *, keep_newest: bool = False) -> list[Reason | None]:
    return [reason for _, reason in decide(rows, of, keep_newest=keep_newest)]


def test_rows_after_a_retained_row_remain() -> None:
    delivered = proof("event-0", "event-2")
    assert reasons(ROWS, delivered) == [None, None, None]
    young = [ROWS[0], replace(ROWS[1], is_old=False), ROWS[2]]
    assert reasons(young, delivered) == [None, "young", "following"]
    assert reasons(ROWS, replace(proof(), dead_letters=dead_letters("event-1", "event-2"))) == [
        "unproven",
        "following",
        "following",
    ]


def test_the_newest_row_remains_unless_it_is_the_tombstone_on_the_topic() -> None:
    everything = ("event-0", "event-1", "event-2")
    assert reasons(ROWS, proof(*everything), keep_newest=True) == [None, None, "newest"]
    tombstone = proof(*everything, newest=record("event-2", has_state=False))
    assert reasons(ROWS, tombstone, keep_newest=True) == [None, None, None]
    state = proof(*everything, newest=record("event-2"))
    assert reasons(ROWS, state, keep_newest=True) == [None, None, "newest"]
    other_tombstone = proof(*everything, newest=record("event-1", has_state=False))
    assert reasons(ROWS, other_tombstone, keep_newest=True) == [None, None, "newest"]


# --- partitions


def plan(*reasons_of_rows: Reason | None, is_closed: bool = True, contents: dict[int, int] | None = None) -> list[str]:
    """Return the reasons why partitions 0 to 2 remain. Each contains one of the rows of an aggregate."""
    partitions = [Partition(number, "public", f"p{number}", is_closed) for number in range(3)]
    planned, dropped, found = PartitionPlan(partitions), set[int](), []
    planned.add(list(zip(ROWS, reasons_of_rows, strict=True)))
    planned.contents = {number: Content(count, "") for number, count in (contents or {0: 1, 1: 1, 2: 1}).items()}
    for partition in partitions:
        found.append(planned.pruned(partition, dropped).reason)
        dropped |= set() if found[-1] else {partition.oid}
    return found


def test_a_partition_is_dropped_if_all_rows_are_deletable() -> None:
    assert plan(None, None, None) == ["", "", ""]
    assert plan(None, None, None, is_closed=False) == ["open", "open", "open"]


@pytest.mark.parametrize("reason", ["newest", "young", "unproven", "following"])
def test_a_partition_remains_with_a_row_that_remains(reason: Reason) -> None:
    assert plan(None, reason, None) == ["", "rows", "order"]


def test_a_partition_remains_after_rows_in_a_partition_that_remains() -> None:
    assert plan(None, None, None, contents={0: 2, 1: 1, 2: 1}) == ["changed", "order", "order"]
