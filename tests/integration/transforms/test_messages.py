"""Outbox without a table: events as transactional logical decoding messages."""

from __future__ import annotations

import json
from uuid import uuid4

import psycopg
import pytest
from tests.integration.support import Deploy, decode, headers, records, wait_confirmed, wait_record
from tests.integration.transforms.test_records import book, murmur2_partition

from outbox_events.sending.values import to_json
from outbox_kit.deployment import Deployment, make_plan
from outbox_kit.results import silent
from outbox_kit.results.checks import Status
from outbox_kit.verification import verify

EMIT = "select pg_logical_emit_message(%s, %s, %s)"


@pytest.fixture(scope="module")
def messages(deploy_once: Deploy) -> Deployment:
    """A pipeline whose events are messages."""
    source = {"publication": "messages_p", "slot": "messages_s", "message_prefix": "outbox"}
    connector = {"name": "messages", "template": "outbox-postgres-messages"}
    return deploy_once("messages", source=source, connector=connector)


def emit(
    connection: psycopg.Connection[tuple[object, ...]],
    key: str,
    payload: object,
    *,
    transactional: bool = True,
    **changes: object,
) -> str:
    """Write one message as defined in docs/contract.md. Return its event id."""
    event = str(uuid4())
    created_at = connection.execute("select to_json(now())").fetchone()
    assert created_at is not None
    message = {
        "id": event,
        "aggregate_type": "book",
        "aggregate_id": key,
        "event_type": "book_changed",
        "payload": payload,
        "headers": {"traceparent": "00-1-2-01"},
        "created_at": created_at[0],
        **changes,
    }
    connection.execute(EMIT, (transactional, "outbox", to_json(message)))
    return event


def test_produces_the_record_of_the_contract_for_a_message(messages: Deployment, source_dsn: str) -> None:
    assert make_plan(messages).changes == ()
    key = str(uuid4())
    with psycopg.connect(source_dsn) as connection:
        assert connection.execute("select to_regclass('public.messages_event')").fetchone() == (None,)
        event = emit(connection, key, book(key))
        removed = emit(connection, key, None)
    message = wait_record(messages, "messages.book", 4, event)
    tombstone = wait_record(messages, "messages.book", 4, removed)
    assert message.key() == key.encode()
    assert message.partition() == tombstone.partition() == murmur2_partition(key.encode(), 4)
    assert decode(messages, "book", message)["title"] == book(key)["title"]
    assert tombstone.value() is None
    actual = headers(message)
    assert actual["traceparent"] == "00-1-2-01"
    assert actual["event_time"].endswith("Z")
    assert len(actual["source_sequence"]) == 38
    assert actual["source_sequence"] < headers(tombstone)["source_sequence"]


def test_verify_passes(messages: Deployment) -> None:
    actual = verify(messages, silent)
    assert [check for check in actual if check.status in (Status.FAIL, Status.WARN)] == []
    canary = {check.id: check.status for check in actual if check.id.startswith("canary.")}
    assert set(canary.values()) == {Status.PASS}, canary


def test_does_not_deliver_a_rolled_back_message(messages: Deployment, source_dsn: str) -> None:
    key, after = str(uuid4()), str(uuid4())
    with psycopg.connect(source_dsn) as connection:
        emit(connection, key, book(key))
        connection.rollback()
        last = emit(connection, after, book(after))
    wait_record(messages, "messages.book", 4, last)
    assert key.encode() not in [message.key() for message in records(messages, "messages.book", 4)]


def test_dead_letter_for_invalid_messages_and_continues(messages: Deployment, source_dsn: str) -> None:
    valid = str(uuid4())
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        not_transactional = emit(connection, valid, book(valid), transactional=False)
        connection.execute(EMIT, (True, "outbox", "no json"))
        unknown = emit(connection, valid, {}, aggregate_type="magazine")
        connection.execute(EMIT, (True, "another-prefix", "nobody's"))
        last = emit(connection, valid, book(valid))
    wait_record(messages, "messages.book", 4, last)
    dead_letters = records(messages, "messages.dead-letter", 1)
    reasons = [headers(dead_letter)["dead_letter_reason"] for dead_letter in dead_letters]
    assert sorted(reasons) == ["message-invalid", "message-not-transactional", "unknown-aggregate-type"]
    assert {headers(dead_letter).get("event_id") for dead_letter in dead_letters} == {not_transactional, unknown, None}
    by_reason = dict(zip(reasons, dead_letters, strict=True))
    assert json.loads(by_reason["unknown-aggregate-type"].value() or b"")["aggregate_type"] == "magazine"
    assert messages.connect.status("messages").text == "connector RUNNING, tasks: RUNNING"  # type: ignore[union-attr]


def test_heartbeats_advance_the_slot_without_records(messages: Deployment, source_dsn: str) -> None:
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute("create table unsent as select repeat('x', 1000) from generate_series(1, 5000)")
    wait_confirmed(source_dsn, "messages_s")  # by heartbeats alone
    assert records(messages, "__debezium-heartbeat.messages", 1)


def test_loses_nothing_over_a_restart(messages: Deployment, source_dsn: str) -> None:
    """A lost message cannot be sent again from a row, so the slot may confirm only messages that Kafka has."""
    keys = [str(uuid4()) for _ in range(20)]
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        for key in keys[:10]:
            emit(connection, key, book(key))
        messages.connect.restart("messages")
        for key in keys[10:]:
            last = emit(connection, key, book(key))
    wait_record(messages, "messages.book", 4, last)
    actual = [message.key() for message in records(messages, "messages.book", 4)]
    assert [actual.count(key.encode()) for key in keys] == [1] * len(keys)
