"""Outbox row of an event: validation before any SQL, and error messages without values."""

# ruff: noqa: ANN401  (values of any type are what is tested)

from __future__ import annotations

import json
import traceback
from enum import StrEnum
from typing import Any
from uuid import UUID

import pytest

from outbox_events import InvalidEventError, OutboxEvent
from outbox_events.errors import RefusedError
from outbox_events.sending.event import RESERVED_HEADERS

VALID: dict[str, Any] = {
    "aggregate_type": "book",
    "aggregate_id": "b-1",
    "event_type": "book_added",
    "payload": {"id": "b-1"},
}


class Kind(StrEnum):
    BOOK = "book"


def event(**changes: Any) -> OutboxEvent:
    return OutboxEvent(**{**VALID, **changes})


def test_row_has_all_columns_as_text() -> None:
    row = event(event_id=UUID(int=1), headers={"traceparent": "00-a-b-01"}).to_row()
    assert row == {
        "id": "00000000-0000-0000-0000-000000000001",
        "aggregate_type": "book",
        "aggregate_id": "b-1",
        "event_type": "book_added",
        "payload": '{"id":"b-1"}',
        "headers": '{"traceparent":"00-a-b-01"}',
    }


def test_each_event_has_its_own_id() -> None:
    assert event().event_id != event().event_id


def test_converts_a_uuid_key_to_canonical_text() -> None:
    assert event(aggregate_id=UUID("{ABCDEF00-0000-0000-0000-000000000000}")).to_row()["aggregate_id"] == (
        "abcdef00-0000-0000-0000-000000000000"
    )


def test_converts_text_enums_to_their_value() -> None:
    row = event(aggregate_type=Kind.BOOK).to_row()
    assert type(row["aggregate_type"]) is str
    assert row["aggregate_type"] == "book"


def test_none_is_sql_null_and_an_empty_payload_is_not() -> None:
    assert event(payload=None).to_row()["payload"] is None
    assert event(payload={}).to_row()["payload"] == "{}"


@pytest.mark.parametrize("headers", [None, {}])
def test_missing_headers_are_sql_null(headers: Any) -> None:
    assert event(headers=headers).to_row()["headers"] is None


def test_keeps_header_values_as_text() -> None:
    headers = event(headers={"tenant": "007", "empty": ""}).to_row()["headers"]
    assert headers is not None
    assert json.loads(headers) == {"tenant": "007", "empty": ""}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"aggregate_id": ""}, "aggregate_id is empty"),
        ({"aggregate_id": 7}, "aggregate_id must be text, not int"),
        ({"aggregate_id": "secret\0"}, "aggregate_id contains a NUL"),
        ({"aggregate_id": "secret\ud800"}, "aggregate_id contains half of a surrogate"),
        ({"aggregate_type": ""}, "aggregate_type is empty"),
        ({"aggregate_type": None}, "aggregate_type must be text, not NoneType"),
        ({"event_type": ""}, "event_type is empty"),
        ({"event_id": "not-a-uuid"}, "event_id must be a UUID, not str"),
        ({"payload": ["secret"]}, "payload must be a mapping .* not list"),
        ({"payload": '{"secret": 1}'}, "payload must be a mapping .* not str"),
        ({"payload": {"a": {"b": [b"secret"]}}}, r"payload\.a\.b\[0\] has no JSON form: builtins.bytes"),
        ({"payload": {"a": "secret\0"}}, r"payload\.a contains a NUL"),
        ({"headers": ["secret"]}, "headers must be a mapping of text to text, not list"),
        ({"headers": {"": "secret"}}, "a header's name is empty"),
        ({"headers": {1: "secret"}}, "a header's name must be text, not int"),
        ({"headers": {"tenant": 7}}, "header tenant must be text, not int"),
        ({"headers": {"tenant": None}}, "header tenant must be text, not NoneType"),
        ({"headers": {"tenant": "secret\0"}}, "header tenant contains a NUL"),
    ],
)
def test_rejects_invalid_events(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidEventError, match=message) as raised:
        event(**changes).to_row()
    assert isinstance(raised.value, RefusedError)
    assert "secret" not in str(raised.value)
    assert "secret" not in raised.value.hint


@pytest.mark.parametrize("name", sorted(RESERVED_HEADERS))
def test_rejects_headers_of_the_contract(name: str) -> None:
    with pytest.raises(InvalidEventError, match=f"header {name} is written"):
        event(headers={name: "x"}).to_row()


def test_repr_and_traceback_contain_no_value() -> None:
    invalid = event(payload={"name": "s3cr3t\0"}, headers={"token": "s3cr3t"})
    assert "s3cr3t" not in repr(invalid)
    with pytest.raises(InvalidEventError) as raised:
        invalid.to_row()
    assert "s3cr3t" not in "".join(traceback.format_exception(raised.value))
