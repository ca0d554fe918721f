"""Order of a failed record relative to the other records of its key."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from confluent_kafka import Message

from outbox_events.contract.source_sequence import Version
from outbox_kit.dead_letters.dead_letter import DeadLetter, FailedRecord, Place
from outbox_kit.delivery.stale_dead_letters import KeyRecord, was_delivered_again

FAILED = FailedRecord("mailer", "mail", Place(1, 5), "3")


def dead_letter(sequence: str = "2", event_id: str = "e") -> DeadLetter:
    time = datetime(2026, 11, 20, tzinfo=UTC)
    return DeadLetter(Place(0, 0), time, "", "k", event_id, "", "", sequence, FAILED, record=Message())


@pytest.mark.parametrize(
    ("record", "failed_sequence", "is_newer"),
    [
        (KeyRecord(Version("3"), "other", Place(1, 4)), "2", True),
        (KeyRecord(Version("1"), "other", Place(1, 6)), "2", False),
        (KeyRecord(Version("2"), "other", Place(1, 6)), "2", True),
        (KeyRecord(Version("2"), "other", Place(1, 4)), "2", False),
        (KeyRecord(Version(""), "other", Place(1, 6)), "2", True),
        (KeyRecord(Version("3"), "other", Place(1, 4)), "", False),
        (KeyRecord(Version(""), "other", Place(0, 0)), "", True),  # the order is unknown
        (KeyRecord(Version("3"), "e", Place(1, 6)), "2", False),  # another delivery of the event
        (KeyRecord(Version("2"), "e", Place(1, 5)), "2", False),
    ],
)
def test_newer_records(record: KeyRecord, failed_sequence: str, *, is_newer: bool) -> None:
    assert record.is_newer_than(dead_letter(failed_sequence), FAILED) is is_newer


def test_records_without_an_event_id_are_no_copies() -> None:
    assert KeyRecord(Version(""), "", Place(1, 6)).is_newer_than(dead_letter("", event_id=""), FAILED)


def test_a_replayed_record_was_delivered_again() -> None:
    failed = KeyRecord(Version("2"), "e", Place(1, 5))
    assert not was_delivered_again(dead_letter(), FAILED, [failed])
    assert was_delivered_again(dead_letter(), FAILED, [failed, KeyRecord(Version("2"), "e", Place(1, 6))])
    assert was_delivered_again(dead_letter(), FAILED, [failed, KeyRecord(Version("3"), "f", Place(1, 6))])
