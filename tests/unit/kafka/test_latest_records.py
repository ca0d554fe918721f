"""Latest records: order of the records of a key, incremental reads, and topics that were recreated."""

from __future__ import annotations

import pytest
from tests.unit.fake_topic import FakeTopic, Record

from outbox_events.contract.partitioner import partition_of
from outbox_events.errors import RefusedError, WaitTimeoutError


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> FakeTopic:
    return FakeTopic(monkeypatch)


def test_uses_the_latest_record_of_a_key(topic: FakeTopic) -> None:
    """After an addition of partitions, a key can be in two partitions. source_sequence orders its records."""
    topic.append(
        Record(b"a", b"x", "0001_2", "newer"),
        Record(b"a", b"x", "0001_1", "older"),
        Record(b"b", b"x", "0001_1", "first"),
        Record(b"b", None, "0001_1", "same sequence, later offset"),
        Record(None, b"x", "0001_1", "no key"),
    )
    state = topic.latest_records()
    state.read()
    assert {key: record.event_id for key, record in state.by_key.items()} == {
        "a": "newer",
        "b": "same sequence, later offset",
    }
    assert state.keys_with_state() == {"a"}


OLD, NEW = "0001_1", "0001_2"


@pytest.mark.parametrize(
    ("records", "overwritten", "has_state"),
    [
        ([Record(b"a", b"x", OLD, "1"), Record(b"a", b"y", NEW, "2")], {}, True),
        ([Record(b"a", b"y", NEW, "2"), Record(b"a", b"x", OLD, "1")], {"a": True}, True),
        ([Record(b"a", b"y", NEW, "2"), Record(b"a", b"x", "", "")], {"a": True}, True),
        ([Record(b"a", b"y", NEW, "2"), Record(b"a", None, OLD, "1")], {"a": False}, False),
        ([Record(b"a", None, NEW, "2"), Record(b"a", b"x", OLD, "1")], {"a": True}, True),
        ([Record(b"a", b"y", NEW, "2"), Record(b"a", b"x", OLD, "1"), Record(b"a", b"y", OLD, "2")], {}, True),
        ([Record(b"a", b"y", NEW, "2"), Record(b"a", b"x", OLD, "1"), Record(b"a", b"z", "0001_3", "3")], {}, True),
    ],
    ids=[
        "in order",
        "an older record follows",
        "a record without headers follows",
        "an older tombstone follows",
        "an older state follows a tombstone",
        "both delivered again, with a lower sequence",
        "the current state was sent again",
    ],
)
def test_compaction_retains_the_last_record(
    topic: FakeTopic, records: list[Record], overwritten: dict[str, bool], has_state: bool
) -> None:
    topic.append(*records)
    state = topic.latest_records()
    state.read()
    assert state.overwritten == overwritten
    assert state.keys_with_state() == ({"a"} if has_state else set())


HOME = partition_of(b"a", 4)
AWAY = (HOME + 1) % 4


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize(
    ("records", "misplaced"),
    [
        ([Record(b"a", b"x", OLD, number=HOME)], ()),
        ([Record(b"a", b"x", OLD, number=AWAY)], (AWAY,)),
        ([Record(b"a", b"x", OLD, number=AWAY), Record(b"a", b"y", NEW, number=HOME)], (AWAY,)),
        ([Record(b"a", b"x", "", number=AWAY), Record(b"a", b"y", NEW, number=HOME)], (AWAY,)),
        ([Record(b"a", b"x", OLD, number=HOME), Record(b"a", b"x", OLD, number=AWAY)], (AWAY,)),
        ([Record(b"a", b"x", OLD, number=HOME), Record(b"a", None, NEW, number=AWAY)], (HOME,)),
        ([Record(b"a", None, NEW, number=HOME), Record(b"a", None, "", number=AWAY)], ()),
        ([Record(b"\0\0\0\0\7\2a", b"x", OLD, number=number) for number in (HOME, AWAY)], ()),
    ],
    ids=[
        "at home",
        "away",
        "old state away",
        "state without a sequence away",
        "a copy away",
        "tombstone away",
        "tombstones",
        "key with a schema id",
    ],
)
def test_lists_states_that_no_later_record_replaces(
    monkeypatch: pytest.MonkeyPatch, records: list[Record], misplaced: tuple[int, ...], in_order: bool
) -> None:
    """Partitions are read in any order."""
    topic = FakeTopic(monkeypatch, partitions=4)
    topic.append(*(records if in_order else reversed(records)))
    state = topic.latest_records(hashed_keys=True)
    state.read()
    assert state.misplaced_states() == ({"a": misplaced} if misplaced else {})


def test_with_a_partition_field_the_newest_record_determines_the_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = FakeTopic(monkeypatch, partitions=4)
    topic.append(Record(b"a", b"x", OLD, number=HOME), Record(b"b", b"x", NEW, number=3), Record(b"b", b"x", OLD))
    state = topic.latest_records()
    state.read()
    assert state.misplaced_states() == {"b": (0,)}


@pytest.mark.parametrize("numbers", [(0, 3), (3, 0)])
def test_with_a_partition_field_either_of_two_copies_can_be_right(
    monkeypatch: pytest.MonkeyPatch, numbers: tuple[int, int]
) -> None:
    topic = FakeTopic(monkeypatch, partitions=4)
    topic.append(*(Record(b"a", b"x", OLD, number=number) for number in numbers))
    state = topic.latest_records()
    state.read()
    assert state.misplaced_states() == {}


def test_a_topic_is_read_once_and_then_incrementally(topic: FakeTopic) -> None:
    state = topic.latest_records()
    topic.append(Record(b"a", b"x", "1"))
    state.read()
    topic.append(Record(b"b", b"x", "2"), Record(b"a", None, "3"))
    state.read()
    state.read()
    assert state.keys_with_state() == {"b"}
    assert topic.starts == [{0: 0}, {0: 1}, {}]


def test_a_recreated_topic_is_read_from_its_beginning(topic: FakeTopic) -> None:
    state = topic.latest_records()
    topic.append(Record(b"a", b"x", "1"))
    state.read()
    topic.recreate()
    topic.append(Record(b"b", b"x", "2"), Record(b"c", b"x", "3"))
    state.read()
    assert state.keys_with_state() == {"b", "c"}


def test_a_shorter_topic_is_read_from_its_beginning(topic: FakeTopic) -> None:
    """The cluster does not assign topic ids, so only the end offset shows that the topic was recreated."""
    state = topic.latest_records()
    topic.append(Record(b"a", b"x", "1"), Record(b"b", b"x", "2"))
    state.read()
    topic.recreate(has_id=False)
    topic.append(Record(b"c", b"x", "3"))
    state.read()
    assert state.keys_with_state() == {"c"}


def test_a_topic_is_read_again_after_records_were_deleted(topic: FakeTopic) -> None:
    state = topic.latest_records()
    topic.append(Record(b"a", b"x", "1"), Record(b"b", b"x", "2"))
    state.read()
    topic.delete_first_record()
    state.read()
    assert state.keys_with_state() == {"b"}


def test_limits_the_records_of_a_call_and_continues_with_the_next(topic: FakeTopic) -> None:
    state = topic.latest_records(max_records=2)
    topic.append(*(Record(key.encode(), b"x", "1") for key in "abc"))
    with pytest.raises(RefusedError, match="more than 2 unread records"):
        state.read()
    state.read()
    assert state.keys_with_state() == {"a", "b", "c"}
    assert topic.starts == [{0: 0}, {0: 2}]


def test_limits_the_time_of_a_call(topic: FakeTopic) -> None:
    topic.append(Record(b"a", b"x", "1"))
    with pytest.raises(WaitTimeoutError):
        topic.latest_records().read(seconds=0)


def test_reads_records_since_a_time(topic: FakeTopic) -> None:
    topic.append(*(Record(b"a", b"x", f"0001_{number}", f"event {number}") for number in range(3)))
    newest = topic.latest_records(since=1, event_ids=set())
    newest.read()
    assert newest.event_ids == {"event 1", "event 2"}
    topic.append(Record(b"a", b"x", "0001_3", "event 3"))
    newest.read()
    assert newest.event_ids == {"event 1", "event 2", "event 3"}
    later = topic.latest_records(since=99, event_ids=set())
    later.read()
    assert later.event_ids == set()
