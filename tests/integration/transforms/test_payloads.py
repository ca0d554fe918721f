"""Records that a consumer receives for JSON and text in one column, version and header columns, and CloudEvents."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from tests.integration.outbox_rows import (
    LOAN_1,
    LOAN_2,
    RUNNING,
    connector_state,
    ids_by_version,
    insert,
    read_dead_letter,
    schema_id,
)
from tests.integration.support import Deploy, decode, headers, records, wait_record
from tests.integration.transforms.test_records import book, murmur2_partition

from outbox_events.sending.values import to_json
from outbox_kit.connect import lifecycle as connect_lifecycle
from outbox_kit.deployment import Deployment, apply
from outbox_kit.results import silent

TYPED = "public.typed_event"


class Typed(NamedTuple):
    """The pipeline, and the events that were written for version 1 of a schema before version 2 was deployed."""

    deployment: Deployment
    backlog: list[str]


@pytest.fixture(scope="module")
def typed(deploy_once: Deploy, project: Path, source_dsn: str) -> Typed:
    schema = project / "schemas" / "typed_loan.avsc"
    schema.write_text(json.dumps(LOAN_1))
    source = {
        "table": TYPED,
        "publication": "typed_p",
        "slot": "typed_s",
        "schema_version_column": "schema_version",
        "header_columns": {"tenant": "x-tenant", "seq": "x-seq"},
        "cloudevents_source": "/library",
    }
    aggregates = {
        "book": {
            "schema": "schemas/book.avsc",
            "partitions": 4,
            "unknown_fields": "ignore",
            "tombstone_event_types": ["BookRemoved", "BookLost"],
        },
        "loan": {"schema": f"schemas/{schema.name}"},
        "note": {"payload": "text", "partitions": 2},
    }
    deployment = deploy_once("typed", source=source, aggregates=aggregates)
    connect_lifecycle.stop(deployment.connect, "typed")
    backlog = [insert(source_dsn, TYPED, "loan", f"l{n}", f'{{"id": "l{n}", "shelf": "S{n}"}}') for n in range(50)]
    schema.write_text(json.dumps(LOAN_2))
    apply(deployment, silent)
    return Typed(deployment, backlog)


def test_delivers_a_backlog_of_version_1_with_version_2_deployed(typed: Typed, source_dsn: str) -> None:
    after = insert(source_dsn, TYPED, "loan", "after", '{"id": "after", "branch": "west"}')
    newest = wait_record(typed.deployment, "typed.loan", 1, after)
    actual = records(typed.deployment, "typed.loan", 1)
    assert [headers(message)["event_id"] for message in actual][: len(typed.backlog)] == typed.backlog
    old = actual[: len(typed.backlog)]
    ids = ids_by_version(typed.deployment, "loan")
    assert {schema_id(message) for message in old} == {ids[1]}
    assert [decode(typed.deployment, "loan", message) for message in old] == [
        {"id": f"l{n}", "shelf": f"S{n}"} for n in range(len(old))
    ]
    assert schema_id(newest) == ids[2] != ids[1]
    assert decode(typed.deployment, "loan", newest) == {"id": "after", "branch": "west"}


@pytest.mark.parametrize(
    ("named", "version", "decoded"),
    [
        (None, 2, {"id": "x", "branch": "main"}),
        ("1", 1, {"id": "x", "shelf": "none"}),
        ("2", 2, {"id": "x", "branch": "main"}),
    ],
)
def test_version_column_selects_the_schema(
    typed: Typed, source_dsn: str, named: str | None, version: int, decoded: dict[str, str]
) -> None:
    """A payload that matches both versions is encoded with the latest version unless the row names a version."""
    event = insert(source_dsn, TYPED, "loan", "x", '{"id": "x"}', schema_version=named)
    message = wait_record(typed.deployment, "typed.loan", 1, event)
    assert schema_id(message) == ids_by_version(typed.deployment, "loan")[version]
    assert decode(typed.deployment, "loan", message) == decoded


def test_dead_letter_for_a_missing_or_mismatched_version(typed: Typed, source_dsn: str) -> None:
    unknown = insert(source_dsn, TYPED, "loan", "x", '{"id": "x"}', schema_version="9")
    mismatched = insert(source_dsn, TYPED, "loan", "x", '{"id": "x", "branch": "secret"}', schema_version="1")
    assert read_dead_letter(typed.deployment, unknown)[0]["dead_letter_reason"] == "schema-version-unknown"
    actual, row = read_dead_letter(typed.deployment, mismatched)
    assert actual["dead_letter_reason"] == "payload-invalid"
    assert "secret" not in actual["dead_letter_message"]
    assert row["schema_version"] == "1"


def test_drops_unknown_fields_only_where_configured(typed: Typed, source_dsn: str) -> None:
    key = str(uuid4())
    payload = book(key)
    expected_event = insert(source_dsn, TYPED, "book", key, to_json(payload))
    payload |= {"colour": "blue", "sizes": {"a": [1, {"b": None}]}}
    extended_event = insert(source_dsn, TYPED, "book", key, to_json(payload))
    refused = insert(source_dsn, TYPED, "loan", "x", '{"id": "x", "colour": "blue"}')
    first, second = (
        wait_record(typed.deployment, "typed.book", 4, event) for event in (expected_event, extended_event)
    )
    assert second.value() == first.value()
    actual, _ = read_dead_letter(typed.deployment, refused)
    assert actual["dead_letter_reason"] == "payload-invalid"
    assert "colour" in actual["dead_letter_message"]


@pytest.mark.parametrize(
    "payload",
    ["plain — “text”", "{broken json", '{"a": 1.50, "a": 2}', "null", " "],
    ids=["text", "broken JSON", "JSON", "JSON null", "blank"],
)
def test_passes_text_through_unchanged(typed: Typed, source_dsn: str, payload: str) -> None:
    message = wait_record(typed.deployment, "typed.note", 2, insert(source_dsn, TYPED, "note", "n", payload))
    assert message.value() == payload.encode()
    assert message.partition() == murmur2_partition(b"n", 2)
    assert headers(message)["content-type"] == "text/plain; charset=utf-8"


def test_produces_a_tombstone_for_null_text(typed: Typed, source_dsn: str) -> None:
    message = wait_record(typed.deployment, "typed.note", 2, insert(source_dsn, TYPED, "note", "n", None))
    assert message.value() is None


@pytest.mark.parametrize("payload", [None, '{"fits": "nothing"}', "{broken"], ids=str)
@pytest.mark.parametrize("event_type", ["BookRemoved", "BookLost"])
def test_configured_event_types_are_tombstones_for_any_payload(
    typed: Typed, source_dsn: str, event_type: str, payload: str | None
) -> None:
    key = str(uuid4())
    event = insert(source_dsn, TYPED, "book", key, payload, event_type=event_type)
    message = wait_record(typed.deployment, "typed.book", 4, event)
    assert message.value() is None
    assert (message.key(), message.partition()) == (key.encode(), murmur2_partition(key.encode(), 4))
    assert headers(message)["event_type"] == event_type


def test_oversized_row_is_a_dead_letter_with_coordinates_and_hash(typed: Typed, source_dsn: str) -> None:
    """With exactly-once support, a record that the broker rejects fails at commit and stops the task at each start."""
    deployment = typed.deployment
    key, text = str(uuid4()), "secret" * 200_000
    payload = to_json(book(key, title=text))
    event = insert(source_dsn, TYPED, "book", key, payload)
    after = insert(source_dsn, TYPED, "book", key, to_json(book(key)))
    wait_record(deployment, "typed.book", 4, after)
    actual, row = read_dead_letter(deployment, event)
    assert actual["dead_letter_reason"] == "record-too-large"
    assert row["payload_sha256"] == hashlib.sha256(payload.encode()).hexdigest()
    assert row["payload_bytes"] == len(payload.encode())
    assert (row["id"], row["aggregate_type"], row["aggregate_id"]) == (event, "book", key)
    assert "secret" not in json.dumps([actual, row])
    live = deployment.connect.config("typed")
    assert live is not None
    assert live["exactly.once.support"] == "required"
    assert connector_state(deployment) == RUNNING


def test_headers_as_received_by_a_consumer(typed: Typed, source_dsn: str) -> None:
    """Each header occurs once, as text. The LSN is the LSN of the row."""
    key = str(uuid4())
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        position = sql.SQL("select (pg_current_wal_insert_lsn() - '0/0')::bigint")
        before = connection.execute(position).fetchone()
        event = insert(
            source_dsn,
            TYPED,
            "book",
            key,
            to_json(book(key)),
            event_type="book_lent",
            tenant="Bücherei “Nord”",
            headers='{"traceparent": "00-1-2-01", "attempt": 7}',
            created_at="2026-11-20T18:31:38.1+00:00",
        )
        after = connection.execute(position).fetchone()
        seq = connection.execute(f"select seq from {TYPED} where id = %s", (event,)).fetchone()
    assert before is not None
    assert after is not None
    assert seq is not None
    message = wait_record(typed.deployment, "typed.book", 4, event)
    raw = message.headers()
    assert isinstance(raw, list)
    actual = headers(message)
    assert len(raw) == len(actual), "each once"
    lock = typed.deployment.lock()
    assert lock is not None
    sequence = re.fullmatch(r"([0-9a-f]{4})_([0-9a-f]{16})-([0-9a-f]{16})", actual.pop("source_sequence"))
    assert sequence is not None
    assert int(sequence[1], 16) == lock.source_epoch
    assert before[0] <= int(sequence[3], 16) < after[0]
    assert 0 < int(sequence[2], 16) <= int(sequence[3], 16)
    assert actual == {
        "event_id": event,
        "event_type": "book_lent",
        "aggregate_type": "book",
        "event_time": "2026-11-20T18:31:38.100000Z",
        "x-tenant": "Bücherei “Nord”",
        "x-seq": str(seq[0]),
        "traceparent": "00-1-2-01",
        "attempt": "7",
        "ce_specversion": "1.0",
        "ce_id": event,
        "ce_source": "/library",
        "ce_type": "book_lent",
        "ce_time": "2026-11-20T18:31:38.100000Z",
        "ce_subject": key,
        "content-type": "application/avro",
    }


def test_tombstone_has_no_content_type_and_null_columns_no_header(typed: Typed, source_dsn: str) -> None:
    actual = headers(wait_record(typed.deployment, "typed.book", 4, insert(source_dsn, TYPED, "book", "gone", None)))
    assert actual["ce_subject"] == "gone"
    assert actual.keys().isdisjoint({"content-type", "x-tenant"})
