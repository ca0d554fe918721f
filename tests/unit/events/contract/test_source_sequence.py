"""Comparison of a source_sequence with a WAL position."""

from __future__ import annotations

import pytest

from outbox_events.contract.source_sequence import WalPosition

POSITION = WalPosition(epoch=2, lsn=0x100)


def sequence(epoch: int, last_commit_lsn: int, event_lsn: int) -> str:
    return f"{epoch:04x}_{last_commit_lsn:016x}-{event_lsn:016x}"


@pytest.mark.parametrize(
    ("text", "is_later"),
    [
        (sequence(2, 0xFF, 0xFF), False),
        (sequence(2, 0x100, 0), True),
        (sequence(2, 0, 0x100), True),
        (sequence(2, 0, 0xFFFFFFFFFF), True),
        (sequence(1, 0x200, 0x200), False),
        (sequence(3, 0x200, 0x200), False),
        (sequence(2, 0x200, 0x200) + "0", False),
        ("2027-11-20T18:31:39Z", False),
        ("", False),
    ],
    ids=[
        "before",
        "the previous commit is after the position",
        "no previous commit, and the event is after the position",
        "long after",
        "another database: an earlier epoch",
        "another database: a later epoch",
        "more digits",
        "a time",
        "no sequence",
    ],
)
def test_events_after_a_position(text: str, is_later: bool) -> None:
    assert POSITION.precedes(text) is is_later
