"""Order of a dead letter and the newest record of its key."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from outbox_kit.dead_letters.dead_letter import DeadLetter, Place
from outbox_kit.dead_letters.stale import is_superseded, original_sequences
from outbox_kit.kafka.latest_records import LatestRecord


def letter(event_id: str, sequence: str) -> DeadLetter:
    return DeadLetter(Place(0, 0), datetime(2026, 11, 20, tzinfo=UTC), "book", "k", event_id, "", "", sequence)


ORIGINAL = original_sequences([letter("first", "5"), letter("second", "3"), letter("first", "1")])


@pytest.mark.parametrize(
    ("record", "superseded"),
    [
        (None, False),
        (("2", "other"), False),
        (("4", "other"), True),
        (("9", "first"), False),  # replayed after the second event, but older
        (("9", "second"), True),
        (("", "other"), False),
    ],
)
def test_superseded(record: tuple[str, str] | None, *, superseded: bool) -> None:
    latest = LatestRecord(*record, event_time="", has_state=True) if record else None
    assert is_superseded(letter("second", "3"), latest, ORIGINAL) is superseded


def test_a_letter_of_a_replay_has_the_sequence_of_the_first_one() -> None:
    assert is_superseded(letter("first", "5"), LatestRecord("2", "other", "", has_state=True), ORIGINAL)
