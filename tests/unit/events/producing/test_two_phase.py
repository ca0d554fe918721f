"""The gid of a prepared transaction contains what its recovery needs."""

from __future__ import annotations

import pytest

from outbox_events import InvalidEventError, Record
from outbox_events.producing.two_phase import MAX_GID_BYTES, make_gid, parse_gid


def record(event_id: str, topic: str) -> Record:
    return Record(topic, b"key", b"value", (("event_id", event_id.encode()),))


@pytest.mark.parametrize(
    ("sender", "event_id", "topic"), [("shop", "e1", "library.book"), ("shop:1", "e@1", "t"), ("a@b", "e", "t_1-x")]
)
def test_gid_is_split_into_its_parts(sender: str, event_id: str, topic: str) -> None:
    entry = parse_gid(make_gid(sender, record(event_id, topic)), 1.0)
    assert (entry.sender, entry.event_id, entry.topic) == (sender, event_id, topic)


def test_gid_has_at_most_the_bytes_that_the_server_accepts() -> None:
    sender = "ä" * 80
    longest = "t" * (MAX_GID_BYTES - len(f"{sender}:e@".encode()))
    assert len(make_gid(sender, record("e", longest)).encode()) == MAX_GID_BYTES
    with pytest.raises(InvalidEventError, match=sender):
        make_gid(sender, record("e", longest + "t"))
