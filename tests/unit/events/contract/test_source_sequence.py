"""Order of versions, and comparison of versions with a WAL position."""

from __future__ import annotations

import pytest

from outbox_events.contract.source_sequence import Version, WalPosition

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
    assert POSITION.precedes(Version(text)) is is_later


@pytest.mark.parametrize(
    ("text", "is_beyond"),
    [
        (sequence(2, 0xFF, 0x100), False),
        (sequence(2, 0, 0x101), True),
        (sequence(2, 0x101, 0), True),
        (sequence(1, 0x200, 0x200), False),
        (sequence(3, 0, 0), True),
        (sequence(3, 0, 0) + "0", False),
        ("", False),
    ],
)
def test_events_beyond_a_position(text: str, is_beyond: bool) -> None:
    assert POSITION.is_exceeded_by(Version(text)) is is_beyond


def test_order() -> None:
    """The source epoch decides first, then the last commit, the event, the partition epoch and the offset."""
    ordered = [
        Version(""),
        Version("", 0, 1),
        Version("", 1, 0),
        Version(sequence(1, 9, 9), 9, 9),
        Version(sequence(2, 1, 0xA)),
        Version(sequence(2, 1, 0x10)),
        Version(sequence(2, 0x10, 0)),
        Version(sequence(2, 0x10, 0), 0, 1),
        Version(sequence(2, 0x10, 0), 1, 0),
        Version(sequence(0xFFFF, 0, 0)),
    ]
    assert sorted(reversed(ordered)) == ordered


@pytest.mark.parametrize(
    ("text", "epoch", "lsn"),
    [
        (sequence(255, 7, 8), 255, 8),
        (sequence(255, 8, 7), 255, 8),
        (sequence(0xAB, 1, 2).upper(), 0xAB, None),
        ("00ff_0-0", 255, None),
        ("00ff:0-0", 255, None),  # format of earlier releases
        ("x", 0, None),
        ("", 0, None),
    ],
)
def test_epoch_and_lsn(text: str, epoch: int, lsn: int | None) -> None:
    assert (Version(text).source_epoch, Version(text).lsn) == (epoch, lsn)


@pytest.mark.parametrize(("other", "is_ordered"), [("2", True), ("1", False), ("", False)])
def test_only_different_sequences_order_two_records(other: str, is_ordered: bool) -> None:
    assert Version("1").is_ordered_by_sequence(Version(other)) is is_ordered
    assert Version(other).is_ordered_by_sequence(Version("1")) is is_ordered
