"""Proof of delivery: rows of an aggregate, the newest row of an aggregate, and dead letters."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Message
from tests.unit.delivery.samples import END, NO_PROOF, ROWS, SNAPSHOT, dead_letters, proof, record

from outbox_events.contract.source_sequence import UNVERSIONED, Version, WalPosition
from outbox_kit.dead_letters.dead_letter import DeadLetter, Place
from outbox_kit.delivery.proof import first_versions, is_confirmed, is_superseded
from outbox_kit.kafka.latest_records import LatestRecord


def test_a_record_of_a_row_proves_the_row_and_older_ones() -> None:
    assert proof("event-1").proven(ROWS) == [True, True, False]
    assert proof("event-0").proven(ROWS) == [True, False, False]
    assert proof().proven(ROWS) == [False, False, False]


def test_a_later_row_of_an_older_transaction_proves_nothing() -> None:
    """The sequence was restarted, so the row with the higher seq is older."""
    rows = [ROWS[0], replace(ROWS[1], age=ROWS[0].age + 1)]
    assert proof("event-1").proven(rows) == [False, True]
    same_transaction = [ROWS[0], replace(ROWS[1], age=ROWS[0].age)]
    assert proof("event-1").proven(same_transaction) == [True, True]
    # The row in between is later than the first row, although the last row is not.
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
    assert replace(proof(), dead_letters=dead_letters("event-1")).proven(ROWS) == [False, True, False]
    assert replace(NO_PROOF, dead_letters=dead_letters("event-1")).proven(ROWS) == [False, True, False]


# --- newest row


POSITION = WalPosition(2, 0x100)
BEFORE, AFTER = 0x50, 0x150


def row(*events: str, deleted: bool = False) -> dict[str, Any]:
    """Return a row of latest_events()."""
    return {"event_ids": list(events or ("new",)), "deleted": deleted}


@pytest.mark.parametrize(
    ("newest", "latest", "confirmed"),
    [
        (row(), None, False),
        (row(), record("new"), True),
        (row("due", "young"), record("young"), True),
        (row(), record("old", BEFORE, epoch=2), False),
        (row(), record("old", AFTER, epoch=2), True),
        (row(), record("old", AFTER), False),
        (row(), replace(record("old"), version=UNVERSIONED), False),
        (row(deleted=True), None, True),
        (row(deleted=True), record("old"), False),
        (row(deleted=True), record("new"), True),
    ],
    ids=[
        "no record",
        "its own event",
        "a row that was inserted later",
        "an older event",
        "an event after the WAL position",
        "an event of an earlier source epoch",
        "no sequence",
        "deleted, and nothing on the topic: compaction removes tombstones",
        "deleted, and an old state on the topic",
        "deleted, and its tombstone",
    ],
)
def test_confirmation(newest: dict[str, Any], latest: LatestRecord | None, confirmed: bool) -> None:
    assert is_confirmed(newest, latest, POSITION) is confirmed


def test_without_a_position_only_event_ids_confirm() -> None:
    """The database differs from the one in the lock file, so its LSNs cannot be compared with the records' LSNs."""
    assert not is_confirmed(row(), record("old", AFTER, epoch=2), None)
    assert is_confirmed(row(), record("new"), None)


# --- dead letters


def dead_letter(event_id: str, sequence: str) -> DeadLetter:
    time = datetime(2026, 11, 20, tzinfo=UTC)
    return DeadLetter(Place(0, 0), time, "book", "k", event_id, "", "", sequence, record=Message())


FIRST = first_versions([dead_letter("first", "5"), dead_letter("second", "3"), dead_letter("first", "1")])


@pytest.mark.parametrize(
    ("latest", "superseded"),
    [
        (None, False),
        (("2", "other"), False),
        (("4", "other"), True),
        (("9", "first"), False),  # replayed after the second event, but older
        (("9", "second"), True),
        (("", "other"), False),
    ],
)
def test_superseded(latest: tuple[str, str] | None, *, superseded: bool) -> None:
    newest = LatestRecord(Version(latest[0]), latest[1], "", has_state=True) if latest else None
    assert is_superseded(dead_letter("second", "3"), newest, FIRST) is superseded


def test_a_letter_of_a_replay_has_the_version_of_the_first_one() -> None:
    assert is_superseded(dead_letter("first", "5"), LatestRecord(Version("2"), "other", "", has_state=True), FIRST)
