"""The canary's record: what is right, what is wrong, and that its content is never told."""

from __future__ import annotations

import io
import json
import struct
from typing import Any

import fastavro
import psycopg
import pytest
from confluent_kafka import Message

from outbox_kit.checking import Check, Status
from outbox_kit.pipeline import CANARY_AGGREGATE, Columns, Lock, Pipeline
from outbox_kit.verification import canary

TOKEN = "7d0e6f"
SEQUENCE = "0001:000000000000abcd-000000000000abce"
HEADERS = [("aggregate_type", CANARY_AGGREGATE.encode()), ("source_sequence", SEQUENCE.encode())]


@pytest.fixture
def value(lock: Lock) -> bytes:
    """A good value: magic byte, schema id, body."""
    entry = lock.schemas[CANARY_AGGREGATE][0]
    buffer = io.BytesIO()
    record = {"token": TOKEN, "written_at": 0}
    fastavro.schemaless_writer(buffer, json.loads(entry.text), record)
    return struct.pack(">bI", 0, entry.id) + buffer.getvalue()


def record(value: bytes | None, **changes: Any) -> Message:  # noqa: ANN401 - what a Message holds
    return Message(**{"key": b"outbox-canary", "headers": HEADERS, "value": value, **changes})


def checked(message: Message, lock: Lock | None) -> Check:
    return canary._record_check(message, lock, TOKEN)


def test_a_good_record(value: bytes, lock: Lock) -> None:
    check = checked(record(value), lock)
    assert check.id == "canary.record"
    assert (check.status, check.seen) == (Status.PASS, "key, headers, schema id and payload as sent")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"key": b"other"}, "another key"),
        ({"key": None}, "another key"),
        ({"headers": HEADERS[1:]}, "header aggregate_type is missing or wrong"),
        ({"headers": [("aggregate_type", b"book"), HEADERS[1]]}, "header aggregate_type is missing or wrong"),
        ({"headers": HEADERS[:1]}, "header source_sequence is missing or malformed"),
        (
            {"headers": None},
            "header aggregate_type is missing or wrong; header source_sequence is missing or malformed",
        ),
    ],
)
def test_key_and_headers(value: bytes, lock: Lock, changes: dict[str, Any], problem: str) -> None:
    check = checked(record(value, **changes), lock)
    assert (check.status, check.seen) == (Status.FAIL, problem)


@pytest.mark.parametrize(
    "sequence",
    [
        "",
        "42",
        SEQUENCE[5:],
        SEQUENCE.upper(),
        SEQUENCE + "0",
        SEQUENCE.replace("-", ":"),
        SEQUENCE[:-1],
    ],
)
def test_a_sequence_that_would_not_sort(value: bytes, lock: Lock, sequence: str) -> None:
    headers = [HEADERS[0], ("source_sequence", sequence.encode())]
    assert checked(record(value, headers=headers), lock).seen == "header source_sequence is missing or malformed"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda _: None, "schema id -1 is not in the lock file"),
        (lambda _: b"", "schema id -1 is not in the lock file"),
        (lambda good: good[:5], "schema id -1 is not in the lock file"),
        (lambda good: b"\x01" + good[1:], "schema id 5 is not in the lock file"),
        (lambda good: b"\x00\x00\x00\x00\x63" + good[5:], "schema id 99 is not in the lock file"),
        (lambda _: b'{"token": "x"}', "schema id"),
        (lambda good: good.replace(TOKEN.encode(), b"OTHER!"), "the payload decodes to another token"),
        # framed right, but the body is no such record
        (lambda good: good[:6], "decode"),
        (lambda good: good[:5] + b"\x01", "decode"),
        (lambda good: good[:5] + b"\x04\xff\xff\x00", "decode"),
    ],
    ids=[
        "null",
        "empty",
        "no body",
        "magic byte",
        "unknown id",
        "json",
        "other token",
        "cut",
        "negative",
        "no text",
    ],
)
def test_values(value: bytes, lock: Lock, change: Any, problem: str) -> None:  # noqa: ANN401
    check = checked(record(change(value)), lock)
    assert check.status is Status.FAIL
    assert problem in check.seen
    assert TOKEN not in check.seen
    assert check.remedy


def test_without_a_lock_no_id_is_known(value: bytes) -> None:
    assert checked(record(value), None).seen == "schema id 5 is not in the lock file"


def test_the_row_uses_the_names_of_the_pipeline_file(library: Pipeline) -> None:
    source = library.source.model_copy(
        update={"table": "app.events", "columns": Columns(id="event_id", aggregate_type="kind")}
    )
    text = canary._insert(source).as_string(None)
    assert text.startswith(
        'insert into "app"."events" ("event_id", "kind", "aggregate_id", "event_type", "payload") values ('
    )
    assert psycopg.sql.SQL("{}").format(canary._table(source)).as_string(None) == '"app"."events"'


def test_a_canary_that_is_not_sent_says_so() -> None:
    check = canary.not_sent()
    assert (check.id, check.status) == ("canary.delivered", Status.FAIL)
    assert check.remedy
