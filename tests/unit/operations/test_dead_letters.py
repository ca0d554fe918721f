"""Places of dead letters, and what is read and acknowledged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from outbox_kit.deployment import Deployment
from outbox_kit.errors import RefusedError
from outbox_kit.kafka.consumer_groups import Bounds
from outbox_kit.operations import dead_letters
from outbox_kit.operations.dead_letters import Place

Deployed = Callable[..., Deployment]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("0/7", Place(0, 7)),
        ("12/3456789012", Place(12, 3456789012)),
        *((text, None) for text in ("", "7", "/", "0/", "/7", "a/7", "0/b", "-1/7", "0/-7", "0/7/8", "0/²", "0 /7")),
    ],
)
def test_places(text: str, place: Place | None) -> None:
    assert Place.parse(text) == place
    assert place is None or str(place) == text


class _Record:
    def __init__(self, partition: int, offset: int, key: bytes | None = b"k") -> None:
        self._place, self._key = (partition, offset), key

    def partition(self) -> int:
        return self._place[0]

    def offset(self) -> int:
        return self._place[1]

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes:
        return b'{"payload": "s3cret"}'

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_795_212_980_000 - self._place[1]

    def headers(self) -> list[tuple[str, bytes]]:
        return [("event_id", b"e"), ("dead_letter_reason", b"payload-invalid"), ("dead_letter_message", b"why")]


class Topic:
    """A dead letter topic with records, bounds, and a group's offsets."""

    def __init__(self, records: list[_Record], bounds: dict[int, Bounds], done: dict[int, int]) -> None:
        self.records, self.at, self.done = records, bounds, done
        self.read: list[dict[int, int]] = []

    def bounds(self, *_: object) -> dict[int, Bounds]:
        return self.at

    def acknowledged(self, *_: object) -> dict[int, int]:
        return self.done

    def acknowledge(self, _: object, group: str, __: str, offsets: dict[int, int]) -> None:
        assert group == "outbox-kit.library.dead-letter"
        self.done = {**self.done, **offsets}

    def read_each(self, _: object, __: str, starts: dict[int, int], take: Callable[[Any], None]) -> None:
        self.read.append(starts)
        for record in self.records:
            if record.offset() >= starts.get(record.partition(), 2**63):
                take(record)


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Topic]:
    """Two partitions: 0 holds offsets 2 to 4 and a marker, 1 is empty."""

    def given(done: dict[int, int] | None = None) -> Topic:
        records = [_Record(0, offset, None if offset == 3 else b"k") for offset in (2, 3, 4)]
        found = Topic(records, {0: Bounds(2, 6), 1: Bounds(0, 0)}, done or {})
        for name in ("bounds", "acknowledged", "acknowledge"):
            monkeypatch.setattr(dead_letters.consumer_groups, name, getattr(found, name))
        monkeypatch.setattr(dead_letters, "read_each", found.read_each)
        monkeypatch.setattr(
            dead_letters,
            "read_one",
            lambda _, __, partition, offset: next(
                (each for each in records if (each.partition(), each.offset()) == (partition, offset)), None
            ),
        )
        return found

    return given


@pytest.mark.parametrize(
    ("done", "everything", "offsets"),
    [
        ({}, False, [4, 3, 2]),
        ({0: 4}, False, [4]),
        ({0: 6}, False, []),
        ({0: 6}, True, [4, 3, 2]),
        # Retention has removed what was acknowledged.
        ({0: 1}, False, [4, 3, 2]),
    ],
)
def test_listed(
    deployed: Deployed, topic: Callable[..., Topic], done: dict[int, int], everything: bool, offsets: list[int]
) -> None:
    topic(done)
    found = dead_letters.listed(deployed(), everything=everything)
    assert [letter.place.offset for letter in found] == offsets, "oldest first"
    assert "s3cret" not in repr(found)
    assert dead_letters.count(deployed()) == (3 if everything else len(offsets)) - (3 if everything else 0)


def test_partitions_without_letters_are_not_read(deployed: Deployed, topic: Callable[..., Topic]) -> None:
    found = topic({0: 3})
    dead_letters.listed(deployed())
    assert found.read == [{0: 3}]


def test_a_letter_for_a_program(deployed: Deployed, topic: Callable[..., Topic]) -> None:
    topic({0: 4})
    assert dead_letters.listed(deployed())[0].to_dict() == {
        "place": "0/4",
        "time": "2026-11-20T22:16:19.996000+00:00",
        "aggregate_type": "",
        "key": "k",
        "event_id": "e",
        "reason": "payload-invalid",
        "message": "why",
    }


def test_show_prints_the_row(deployed: Deployed, topic: Callable[..., Topic]) -> None:
    topic()
    letter, row = dead_letters.show(deployed(), Place(0, 3))
    assert (letter.key, row) == ("", '{"payload": "s3cret"}')


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (Place(0, 1), "no dead letter at 0/1"),
        (Place(0, 5), "no dead letter at 0/5"),
        (Place(0, 6), "no dead letter at 0/6"),
        (Place(2, 0), "has no partition 2"),
    ],
)
def test_a_place_without_a_letter(deployed: Deployed, topic: Callable[..., Topic], place: Place, message: str) -> None:
    topic()
    with pytest.raises(RefusedError, match=message):
        dead_letters.show(deployed(), place)


@pytest.mark.parametrize(
    ("done", "upto", "count", "after"),
    [
        ({}, None, 3, {0: 6}),
        ({0: 4}, None, 1, {0: 6}),
        ({0: 6, 1: 0}, None, 0, {0: 6, 1: 0}),
        ({}, Place(0, 2), 1, {0: 3}),
        ({}, Place(0, 4), 3, {0: 5}),
        # What is acknowledged stays so.
        ({0: 5}, Place(0, 2), 0, {0: 5}),
    ],
)
def test_acknowledge(
    deployed: Deployed,
    topic: Callable[..., Topic],
    done: dict[int, int],
    upto: Place | None,
    count: int,
    after: dict[int, int],
) -> None:
    found = topic(done)
    assert dead_letters.acknowledge(deployed(), upto) == count
    assert found.done == after


def test_what_is_not_there_yet_cannot_be_acknowledged(deployed: Deployed, topic: Callable[..., Topic]) -> None:
    found = topic()
    with pytest.raises(RefusedError, match="has no record at 0/6 yet"):
        dead_letters.acknowledge(deployed(), Place(0, 6))
    assert found.done == {}
