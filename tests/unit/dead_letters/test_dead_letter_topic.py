"""Dead letters: locations, reading and acknowledgement."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from outbox_events.contract import dead_letter_headers
from outbox_events.errors import RefusedError
from outbox_events.kafka.record import Record
from outbox_events.kafka.topic_requests import Bounds
from outbox_kit.dead_letters import acknowledgements, dead_letter_topic
from outbox_kit.dead_letters.acknowledgements import Acknowledged, Acknowledgements
from outbox_kit.dead_letters.dead_letter import Place
from outbox_kit.dead_letters.dead_letter_topic import DeadLetterTopic
from outbox_kit.pipeline import Kafka

TOPIC, ACKNOWLEDGED = "library.dead-letter", "library.dead-letter.acknowledged"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("0/7", Place(0, 7)),
        ("12/3456789012", Place(12, 3456789012)),
        *((text, None) for text in ("", "7", "/", "0/", "/7", "a/7", "0/b", "-1/7", "0/-7", "0/7/8", "0/²", "0 /7")),
    ],
)
def test_parses_locations(text: str, place: Place | None) -> None:
    assert Place.parse(text) == place
    assert place is None or str(place) == text


class _Record:
    def __init__(self, partition: int, offset: int, key: bytes | None = b"k") -> None:
        self._place, self._key = (partition, offset), key
        self.failed: list[tuple[str, bytes]] = []

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
        return [
            ("event_id", b"e"),
            ("dead_letter_reason", b"payload-invalid"),
            ("dead_letter_message", b"reason"),
            ("source_sequence", b"0001_1"),
            *self.failed,
        ]


class FakeKafka:
    """Client with a dead letter topic. Partition 0 has offsets 2 to 4 and a marker, and partition 1 is empty."""

    kafka = Kafka(bootstrap_servers="127.0.0.1:1")

    def __init__(self) -> None:
        self.records = [_Record(0, offset, None if offset == 3 else b"k") for offset in (2, 3, 4)]
        self.stored: list[Record] = []
        self.deleted: dict[int, int] = {}
        self.read: list[dict[int, int]] = []
        self.id = "id-1"

    def topics(self) -> dict[str, tuple[int, int]]:
        prefixes = ("library", "library.author", "shop")
        return {f"{prefix}.dead-letter.acknowledged": (1, 1) for prefix in prefixes}

    def topic_id(self, _: str) -> str:
        return self.id

    def bounds(self, topic: str) -> dict[int, Bounds]:
        if topic == ACKNOWLEDGED:
            return {0: Bounds(0, len(self.stored))}
        return {0: Bounds(2, 6), 1: Bounds(0, 0)}

    def send_records(self, _: object, records: list[Record]) -> None:
        self.stored += records

    def read_acknowledged(self, _: object, __: object, process: Callable[[Any], None]) -> None:
        for record in self.stored:
            process(SimpleNamespace(key=partial(getattr, record, "key"), value=partial(getattr, record, "value")))

    def acknowledged(self, topic: str = TOPIC) -> dict[int, tuple[int, list[int]]]:
        found = Acknowledgements(self, ACKNOWLEDGED, topic).read()  # type: ignore[arg-type]
        return {number: (entry.upto, sorted(entry.single)) for number, entry in found.items()}

    def delete_records(self, _: str, offsets: dict[int, int]) -> None:
        self.deleted = offsets

    def read_records(
        self, _: object, ranges: dict[str, dict[int, Bounds]], process: Callable[[Any], bool | None], **__: object
    ) -> None:
        [bounds] = ranges.values()
        starts = {number: bound.first for number, bound in bounds.items() if bound.first < bound.end}
        self.read.append(starts)
        for record in self.records:
            if record.offset() >= starts.get(record.partition(), 2**63) and process(record):
                return

    def read_record(self, _: object, __: str, partition: int, offset: int) -> _Record | None:
        return next(
            (record for record in self.records if (record.partition(), record.offset()) == (partition, offset)), None
        )


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return a function that creates a client, whose records the readers return."""

    def create(upto: dict[int, int] | None = None) -> FakeKafka:
        client = FakeKafka()
        monkeypatch.setattr(acknowledgements, "read_records", client.read_acknowledged)
        monkeypatch.setattr(acknowledgements, "send_records", client.send_records)
        new = {number: Acknowledged(offset) for number, offset in (upto or {}).items()}
        Acknowledgements(client, ACKNOWLEDGED, TOPIC).write(new)  # type: ignore[arg-type]
        monkeypatch.setattr(dead_letter_topic, "read_records", client.read_records)
        monkeypatch.setattr(dead_letter_topic, "read_record", client.read_record)
        return client

    return create


def of_connector(client: Any) -> DeadLetterTopic:  # noqa: ANN401 - FakeKafka
    return DeadLetterTopic(client, TOPIC, ACKNOWLEDGED, of_connector=True)


def of_consumer(client: Any, name: str) -> DeadLetterTopic:  # noqa: ANN401 - FakeKafka
    return DeadLetterTopic(client, name, ACKNOWLEDGED, of_connector=False)


@pytest.mark.parametrize(
    ("committed", "list_all", "offsets"),
    [
        ({}, False, [4, 3, 2]),
        ({0: 4}, False, [4]),
        ({0: 6}, False, []),
        ({0: 6}, True, [4, 3, 2]),
        # Retention has removed the acknowledged dead letters.
        ({0: 1}, False, [4, 3, 2]),
        # The acknowledged offset of another topic would hide the next dead letters.
        ({0: 7}, False, [4, 3, 2]),
    ],
)
def test_lists_letters(
    topic: Callable[..., Any],
    committed: dict[int, int],
    list_all: bool,
    offsets: list[int],
) -> None:
    client = topic(committed)
    dead_letters = of_connector(client).read(list_all=list_all)
    assert [dead_letter.place.offset for dead_letter in dead_letters] == offsets, "oldest first"
    assert {dead_letter.source_sequence for dead_letter in dead_letters} <= {"0001_1"}
    assert "s3cret" not in repr(dead_letters)
    assert of_connector(client).count() == (0 if list_all else len(offsets))


def test_does_not_read_partitions_without_letters(topic: Callable[..., Any]) -> None:
    client = topic({0: 3})
    of_connector(client).read()
    assert client.read == [{0: 3}]


def test_letter_as_json(topic: Callable[..., Any]) -> None:
    assert of_connector(topic({0: 4})).read()[0].to_dict() == {
        "place": "0/4",
        "time": "2026-11-20T22:16:19.996000+00:00",
        "aggregate_type": "",
        "key": "k",
        "event_id": "e",
        "reason": "payload-invalid",
        "message": "reason",
        "source_sequence": "0001_1",
    }


def test_reads_one_letter_with_its_row(topic: Callable[..., Any]) -> None:
    dead_letter = of_connector(topic()).read_one(Place(0, 3))
    assert (dead_letter.key, dead_letter.value) == ("", b'{"payload": "s3cret"}')


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (Place(0, 1), "has no dead letter at 0/1 "),
        (Place(0, 5), "has no dead letter at 0/5 "),
        (Place(0, 6), "has no dead letter at 0/6 "),
        (Place(2, 0), "has no partition 2"),
    ],
)
def test_reports_a_location_without_a_letter(topic: Callable[..., Any], place: Place, message: str) -> None:
    with pytest.raises(RefusedError, match=message):
        of_connector(topic()).read_one(place)


@pytest.mark.parametrize(
    ("committed", "upto", "count", "after"),
    [
        ({}, None, 3, {0: 6}),
        ({0: 4}, None, 1, {0: 6}),
        ({0: 6, 1: 0}, None, 0, {0: 6, 1: 0}),
        ({}, Place(0, 2), 1, {0: 3}),
        # A marker follows.
        ({}, Place(0, 4), 3, {0: 6}),
        # Acknowledged dead letters stay acknowledged.
        ({0: 4}, Place(0, 2), 0, {0: 4}),
    ],
)
def test_acknowledge(
    topic: Callable[..., Any],
    committed: dict[int, int],
    upto: Place | None,
    count: int,
    after: dict[int, int],
) -> None:
    client = topic(committed)
    assert of_connector(client).acknowledge(upto) == count
    assert client.acknowledged() == {number: (upto, []) for number, upto in after.items()}


def test_rejects_acknowledging_future_offsets(topic: Callable[..., Any]) -> None:
    client = topic()
    with pytest.raises(RefusedError, match="has no record at 0/6"):
        of_connector(client).acknowledge(Place(0, 6))
    assert client.acknowledged() == {}


def test_acknowledges_single_letters(topic: Callable[..., Any]) -> None:
    """The offset advances when all earlier letters are acknowledged. The partition ends with a marker."""
    client = topic({0: 2})
    assert of_connector(client).acknowledge_places([Place(0, 3)]) == 1
    assert client.acknowledged() == {0: (2, [3])}
    assert [dead_letter.place.offset for dead_letter in of_connector(client).read()] == [4, 2]
    assert of_connector(client).count_with_removed(limit=1) == (1, 0)
    assert of_connector(client).acknowledge_places([Place(0, 3), Place(0, 2)]) == 1
    assert client.acknowledged() == {0: (4, [])}
    assert of_connector(client).acknowledge_places([Place(0, 4)]) == 1
    assert client.acknowledged() == {0: (6, [])}


def test_acknowledging_up_to_an_offset_retains_later_single_letters(topic: Callable[..., Any]) -> None:
    client = topic()
    of_connector(client).acknowledge_places([Place(0, 4)])
    assert of_connector(client).acknowledge(Place(0, 2)) == 1
    assert [dead_letter.place.offset for dead_letter in of_connector(client).read()] == [3]


def test_purges_only_before_the_first_unacknowledged_letter(topic: Callable[..., Any]) -> None:
    client = topic({0: 2})
    of_connector(client).acknowledge_places([Place(0, 4)])
    assert of_connector(client).purge() == 0
    of_connector(client).acknowledge_places([Place(0, 2)])
    assert of_connector(client).purge() == 1
    assert client.deleted == {0: 3}


def test_each_topic_has_its_own_acknowledgements(topic: Callable[..., Any]) -> None:
    client = topic()
    of_connector(client).acknowledge()
    assert client.acknowledged("mail.dead-letter") == {}
    client.id = "id-2"
    assert client.acknowledged() == {}, "the topic was created again"


@pytest.mark.parametrize(
    ("acknowledged", "removed"),
    [({}, 2), ({0: Acknowledged(1)}, 1), ({0: Acknowledged(0, frozenset({1}))}, 1), ({0: Acknowledged(2)}, 0)],
)
def test_counts_letters_that_were_removed_before_they_were_acknowledged(
    topic: Callable[..., Any], acknowledged: dict[int, Acknowledged], removed: int
) -> None:
    client = topic()
    Acknowledgements(client, ACKNOWLEDGED, TOPIC).write(acknowledged)
    of_connector(client).acknowledge_places([Place(0, 3)])
    assert of_connector(client).removed_offsets() == ({Place(0, 1): removed} if removed else {})
    of_connector(client).acknowledge(Place(0, 1))
    assert of_connector(client).removed_offsets() == {}
    assert of_connector(client).count() == 2


def test_refuses_to_change_the_dead_letters_of_another_pipeline(topic: Callable[..., Any]) -> None:
    client = topic()
    shop = of_consumer(client, "shop.dead-letter")
    for change in (shop.acknowledge, partial(shop.acknowledge_places, [Place(0, 2)]), shop.purge):
        with pytest.raises(RefusedError, match="another pipeline"):
            change()
    assert client.stored == []


@pytest.mark.parametrize(
    ("failed", "accepted"),
    [
        ("library.book", True),
        ("library.book.note", True),
        ("library.author.note", False),
        ("shop.order", False),
        ("library", True),
        ("nobody.note", True),
        (None, False),
    ],
)
def test_changes_no_dead_letters_of_other_topics(topic: Callable[..., Any], failed: str | None, accepted: bool) -> None:
    """The prefix library.author belongs to another pipeline. A dead letter without a topic can be of any pipeline."""
    client = topic()
    client.records = client.records[:1]
    if failed is not None:
        origin = {
            dead_letter_headers.TOPIC: failed,
            dead_letter_headers.PARTITION: "0",
            dead_letter_headers.OFFSET: "7",
        }
        client.records[0].failed = [(name, value.encode()) for name, value in origin.items()]
    mail = of_consumer(client, "mail.dead-letter")

    def purge() -> int:
        Acknowledgements(client, ACKNOWLEDGED, mail.name).write({0: Acknowledged(3)})  # type: ignore[arg-type]
        return mail.purge()

    changes = (
        mail.acknowledge,
        partial(mail.acknowledge, Place(0, 2)),
        partial(mail.acknowledge_places, [Place(0, 2)]),
    )
    for change in (*changes, purge):
        client.stored.clear()
        with nullcontext() if accepted else pytest.raises(RefusedError, match=rf"0/2 of topic mail.*{failed or ''}"):
            assert change() == 1
        assert bool(client.stored) == (accepted or change is purge)
    assert bool(client.deleted) == accepted
    assert len(mail.read(list_all=True)) == 1
