"""Rows that may be deleted and partitions that may be dropped, as a function of rows and records."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outbox_events.contract.source_sequence import WalPosition
from outbox_kit.kafka.latest_records import LatestRecord
from outbox_kit.pruning.decisions import Reason, decide
from outbox_kit.pruning.delivery_proof import DeliveryProof
from outbox_kit.pruning.outbox_rows import OutboxRow
from outbox_kit.pruning.partitions import Content, Partition
from outbox_kit.pruning.prune_partitions import PartitionPlan

SNAPSHOT, END = 100, 200
NO_PROOF = DeliveryProof({}, set(), set(), set(), WalPosition(1, SNAPSHOT), WalPosition(1, END))
# The last row was inserted by the latest transaction.
ROWS = [
    OutboxRow(id=f"event-{number}", aggregate_type="book", key="k", xid=str(number), age=9 - number, table_oid=number,
              is_old=True)
    for number in range(3)
]  # fmt: skip


def record(event_id: str = "other", lsn: int = 1, *, epoch: int = 1, has_state: bool = True) -> LatestRecord:
    """Return the newest record of the key."""
    return LatestRecord(f"{epoch:04x}_{0:016x}-{lsn:016x}", event_id, "", has_state)


def proof(*delivered: str, newest: LatestRecord | None = None) -> DeliveryProof:
    """Return the proof of a topic with records of these events."""
    return replace(NO_PROOF, latest={"k": newest or record()}, event_ids=set(delivered))


def reasons(rows: list[OutboxRow], of: DeliveryProof, *, keep_newest: bool = False) -> list[Reason | None]:
    return [reason for _, reason in decide(rows, of, keep_newest=keep_newest)]


def test_a_record_of_a_row_proves_the_row_and_older_ones() -> None:
    assert proof("event-1").proven(ROWS) == [True, True, False]
    assert proof("event-0").proven(ROWS) == [True, False, False]
    assert proof().proven(ROWS) == [False, False, False]


def test_a_later_row_of_an_older_transaction_proves_nothing() -> None:
    """The sequence was restarted: the row with the higher seq is older."""
    rows = [ROWS[0], replace(ROWS[1], age=ROWS[0].age + 1)]
    assert proof("event-1").proven(rows) == [False, True]
    same_transaction = [ROWS[0], replace(ROWS[1], age=ROWS[0].age)]
    assert proof("event-1").proven(same_transaction) == [True, True]
    # The row in between is later than the first one, although the last one is not.
    assert proof("event-1", "event-2").proven([*ROWS[:2], replace(ROWS[2], age=10)]) == [True, True, True]


@pytest.mark.parametrize(
    ("newest", "is_proven"),
    [
        (record(lsn=SNAPSHOT - 1), False),
        (record(lsn=SNAPSHOT), True),
        (record(lsn=END), True),
        (record(lsn=END + 1), False),
        (record(lsn=SNAPSHOT, epoch=2), False),
        (record(lsn=SNAPSHOT, epoch=0), False),
    ],
)
def test_a_record_committed_after_the_snapshot_proves_all_rows(newest: LatestRecord, is_proven: bool) -> None:
    assert proof(newest=newest).proven(ROWS) == [is_proven] * 3


def test_a_record_that_an_older_one_follows_proves_nothing() -> None:
    overwritten = replace(proof("event-0", "event-1", "event-2", newest=record(lsn=END)), overwritten={"k"})
    assert overwritten.proven(ROWS) == [False] * 3


def test_a_dead_letter_proves_only_its_row() -> None:
    assert replace(proof(), dead_letter_ids={"event-1"}).proven(ROWS) == [False, True, False]
    assert replace(NO_PROOF, dead_letter_ids={"event-1"}).proven(ROWS) == [False, True, False]


def test_rows_after_a_retained_row_remain() -> None:
    delivered = proof("event-0", "event-2")
    assert reasons(ROWS, delivered) == [None, None, None]
    young = [ROWS[0], replace(ROWS[1], is_old=False), ROWS[2]]
    assert reasons(young, delivered) == [None, "young", "following"]
    assert reasons(ROWS, replace(proof(), dead_letter_ids={"event-1", "event-2"})) == [
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
    """Return the reasons of the partitions 0 to 2; each contains one of the rows of an aggregate."""
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
