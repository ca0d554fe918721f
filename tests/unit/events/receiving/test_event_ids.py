"""Ids by which strategies recognize events: unique over topics, exact for raw bytes, and one per event."""

from __future__ import annotations

import logging

import psycopg
import pytest
from confluent_kafka import Message

from outbox_events import Event, ProcessedEvents, Record, header_id, json_value, payload_id, position_id
from outbox_events.producing import stored_record
from outbox_events.receiving.event import Identify, from_message
from outbox_events.receiving.event_ids import EventIds

UUID = "8d2f0c1e-6b7a-4c3d-9e5f-0a1b2c3d4e5f"
OTHER_UUID = UUID.replace("8", "7")
BINARY = bytes(range(128, 144))


def message(*headers: tuple[str, bytes | None]) -> Message:
    return Message(topic="orders", partition=0, offset=7, value=b"{}", headers=list(headers), timestamp=(1, 0))


def event(topic: str = "orders", event_id: str = "", offset: int = 7, value: str = "{}", kind: str = "placed") -> Event:
    headers = {"event_type": kind, **({"event_id": event_id} if event_id else {})}
    return Event(topic, 0, offset, b"o-1", value.encode(), headers, decode=json_value)


@pytest.mark.parametrize(
    ("identify", "sent", "stored"),
    [
        (header_id, event(event_id=UUID), UUID),
        (header_id, event(event_id=UUID.upper()), UUID.upper()),
        (header_id, event(event_id="4711"), "orders:4711"),
        (position_id, event(), "orders/0/7"),
        (payload_id("id"), event(value='{"id": 7}'), "orders:7"),
        (payload_id("id"), event(event_id=OTHER_UUID, value=f'{{"id": "{UUID}"}}'), f"orders:{UUID}"),
    ],
)
def test_an_id_belongs_to_its_topic_unless_it_is_unique(identify: Identify, sent: Event, stored: str) -> None:
    assert EventIds(identify).of([sent]) == [stored]
    assert ProcessedEvents(psycopg.connect, identify=identify).id_of(sent) == stored


@pytest.mark.parametrize(
    "ids",
    [
        [b"\xff\xfe", b"\xff\xfd", b"\xef\xbf\xbd\xef\xbf\xbd"],
        [b"a\x00b", b"ab", b"\\x610062"],
        [b"\\xff", b"\xff", b"\\x5c786666"],
    ],
)
def test_different_bytes_are_different_ids(ids: list[bytes]) -> None:
    found = [from_message(message(("event_id", value))) for value in ids]
    assert len({entry.event_id for entry in found}) == len(ids)
    assert not any("\0" in entry.event_id for entry in found)


@pytest.mark.parametrize("last", [b"second", BINARY, b"\xff"])
def test_receivers_and_proofs_of_delivery_use_the_same_header(last: bytes) -> None:
    headers = (("event_id", b"first"), ("event_id", last))
    expected = from_message(message(*headers)).event_id
    assert expected != "first"
    assert stored_record.message_event_id(message(*headers)) == expected
    assert stored_record.event_id(Record("orders", b"o-1", b"{}", headers)) == expected


def test_one_id_of_different_events_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    ids = EventIds(payload_id("order"))
    first = event(value='{"order": 1}', offset=1)
    paid = event(value='{"order": 1}', offset=2, kind="paid")
    with caplog.at_level(logging.WARNING):
        ids.of([first, event(value='{"order": 2}', offset=3)])
        ids.of([first, event(value='{"order": 1}', offset=4)])  # received again, and produced twice
        assert not caplog.records
        ids.of([paid])
    (record,) = caplog.records
    assert (record.args, record.__dict__["event_type"]) == (("orders/0/1", "orders/0/2"), "paid")


def test_an_event_that_is_encoded_again_has_the_same_uuid(caplog: pytest.LogCaptureFixture) -> None:
    ids = EventIds(header_id)
    with caplog.at_level(logging.WARNING):
        ids.of([event(event_id=UUID, offset=1), event(event_id=UUID, offset=2, value="[]")])
    assert not caplog.records
