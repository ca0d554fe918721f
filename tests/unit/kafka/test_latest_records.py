"""Latest records: order of the records of a key, incremental reads, and topics that were recreated."""

from __future__ import annotations

import pytest
from tests.unit.fake_topic import FakeTopic, Record

from outbox_kit.errors import RefusedError, WaitTimeoutError


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> FakeTopic:
    return FakeTopic(monkeypatch)


def test_uses_the_latest_record_of_a_key(topic: FakeTopic) -> None:
    """After partitions were added, a key can be in two of them. source_sequence orders its records."""
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
    """The cluster assigns no topic ids, so only the end offset shows that the topic was recreated."""
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
