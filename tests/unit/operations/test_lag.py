"""What lies between connector, slot and server, and which moves are refused."""

from __future__ import annotations

import pytest
from tests.unit.operations.samples import positions

from outbox_kit import lsn
from outbox_kit.connect.state import seed_offset
from outbox_kit.errors import RefusedError
from outbox_kit.operations.lag import Move, refuse_unreachable


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0/0"), (97500059720, "16/B374D848"), (2**32, "1/0"), (38320232, "0/248B868")]
)
def test_both_notations(number: int, text: str) -> None:
    assert lsn.text(number) == text
    assert seed_offset(text)["lsn"] == number, "what one part of the kit writes, the other reads"
    assert lsn.both(number) == f"{text} ({number})"
    assert lsn.pair(number) == {"number": number, "text": text}


def test_no_position() -> None:
    assert lsn.both(None) == "none"
    assert lsn.pair(None) is None


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1.0 KiB"), (18_035_000, "17.2 MiB"), (5 << 30, "5.0 GiB")],
)
def test_sizes(count: int, words: str) -> None:
    assert lsn.size(count) == words


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (positions(confirmed=None), "there is no slot: rows since its last position are lost to the connector"),
        (positions(connector=None), "the connector has no position: `outbox apply` seeds it with the slot's"),
        (positions(connector=6000), "the connector is ahead of the server"),
        (positions(connector=900), "the slot is 100 bytes ahead of the connector: somebody else moved it"),
        (positions(connector=1000), "the connector has 3.9 KiB of WAL to read yet"),
        (positions(connector=1200), "200 bytes of WAL are in Kafka and not yet confirmed to the slot: a reset sends"),
        (positions(), "the server keeps 4.0 KiB of WAL for the slot"),
    ],
)
def test_the_meaning_in_words(found: object, sentence: str) -> None:
    assert any(words.startswith(sentence) for words in found.meaning())  # type: ignore[attr-defined]


def test_the_document_has_every_position() -> None:
    document = positions(1200).to_dict()
    assert [document[key]["number"] for key in ("connector", "slot_confirmed_flush", "slot_restart", "server")] == [
        1200,
        1000,
        900,
        5000,
    ]
    assert document["offsets"][0]["partition"] == {"server": "library"}


@pytest.mark.parametrize(
    ("before", "after", "loses", "countable", "words"),
    [
        (1000, 1000, False, True, "nothing is sent again, and nothing is lost"),
        (1200, 1000, False, True, "3 outbox rows in 200 bytes of WAL between 0/3E8 and 0/4B0 are sent again"),
        (1000, 1200, True, True, "3 outbox rows in 200 bytes of WAL between 0/3E8 and 0/4B0 are SKIPPED"),
        # The slot was made anew beyond the connector: what lies between is gone, and cannot be counted.
        (900, 1000, True, False, "3 outbox rows in 100 bytes of WAL between 0/384 and 0/3E8 are SKIPPED"),
        (None, 1000, False, True, "nothing is sent again, and nothing is lost"),
        (None, 1200, True, True, "3 outbox rows in 200 bytes of WAL between 0/3E8 and 0/4B0 are SKIPPED"),
    ],
)
def test_a_move_says_what_it_costs(before: int | None, after: int, loses: bool, countable: bool, words: str) -> None:
    move = Move(before, after, confirmed=1000)
    assert (move.loses, move.countable) == (loses, countable)
    assert move.words(3).startswith(words)


def test_rows_that_were_not_counted_are_not_called_none() -> None:
    assert Move(1200, 1000, 1000).words(None).startswith("an uncounted number of outbox rows in 200 bytes")


@pytest.mark.parametrize(
    ("found", "target", "message"),
    [
        (positions(), 999, "is below the slot's confirmed position 0/3E8"),
        (positions(), 5001, "is beyond the server's 0/1388"),
        (positions(), 1001, "is ahead of the connector"),
        (positions(connector=900), 1000, "is ahead of the connector"),
        (positions(confirmed=None), 1000, "there is no slot to read from"),
    ],
)
def test_a_position_that_loses_rows_is_refused(found: object, target: int, message: str) -> None:
    with pytest.raises(RefusedError, match=message) as refused:
        refuse_unreachable(found, target, skip=False)  # type: ignore[arg-type]
    assert refused.value.hint


@pytest.mark.parametrize("target", [999, 5001])
def test_what_the_slot_cannot_serve_is_refused_also_with_skip(target: int) -> None:
    with pytest.raises(RefusedError):
        refuse_unreachable(positions(), target, skip=True)


@pytest.mark.parametrize(("target", "skip"), [(1000, False), (1200, False), (1201, True), (5000, True)])
def test_what_the_slot_can_serve(target: int, skip: bool) -> None:
    assert refuse_unreachable(positions(connector=1200), target, skip=skip) == Move(1200, target, 1000)
