"""Payloads in a bytea column: Avro that the service encodes, and arbitrary bytes."""

from __future__ import annotations

import io
import json
from pathlib import Path
from uuid import uuid4

import fastavro
import pytest
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
from tests.integration.support import Deploy, decode, wait_record
from tests.integration.transforms.test_records import book

from outbox_kit.deployment import Deployment, apply
from outbox_kit.results import silent
from outbox_kit.results.checks import Status
from outbox_kit.verification import verify

BODIES = "public.bodies_event"


@pytest.fixture(scope="module")
def bodies(deploy_once: Deploy, project: Path) -> Deployment:
    """Authors and books have one schema version. Loans have two, each of which can read the other's bytes."""
    schema = project / "schemas" / "bodies_loan.avsc"
    schema.write_text(json.dumps(LOAN_1))
    source = {"table": BODIES, "publication": "bodies_p", "slot": "bodies_s", "schema_version_column": "schema_version"}
    aggregates = {
        "author": {"schema": "schemas/author.avsc", "partitions": 4, "payload": "avro"},
        "book": {"schema": "schemas/book.avsc", "partitions": 4, "payload": "confluent-avro"},
        "loan": {"schema": f"schemas/{schema.name}", "payload": "avro"},
        "scan": {"payload": "bytes"},
    }
    deployment = deploy_once("bodies", source=source, aggregates=aggregates)
    schema.write_text(json.dumps(LOAN_2))
    apply(deployment, silent)
    return deployment


def author_body(deployment: Deployment, key: str) -> bytes:
    """Encode an Avro body as a service would."""
    lock = deployment.lock()
    assert lock is not None
    body = io.BytesIO()
    schema = fastavro.parse_schema(json.loads(lock.schemas["author"][0].text))
    value = {"id": key, "name": "Umberto Eco", "updated_at": 1_764_000_000_000_000}
    fastavro.schemaless_writer(body, schema, value)
    return body.getvalue()


def book_body(deployment: Deployment, key: str) -> bytes:
    lock = deployment.lock()
    assert lock is not None
    body = io.BytesIO()
    value = book(key, published_on=4017, updated_at=1_764_000_000_000_000)
    fastavro.schemaless_writer(body, fastavro.parse_schema(json.loads(lock.schemas["book"][0].text)), value)
    return body.getvalue()


def test_frames_an_avro_body_unless_framed(bodies: Deployment, source_dsn: str) -> None:
    key = str(uuid4())
    body, framed = author_body(bodies, key), frame(ids_by_version(bodies, "book")[1]) + book_body(bodies, key)
    author = insert(source_dsn, BODIES, "author", key, body)
    retained = insert(source_dsn, BODIES, "book", key, framed)
    message = wait_record(bodies, "bodies.author", 4, author)
    assert message.value() == frame(ids_by_version(bodies, "author")[1]) + body
    assert decode(bodies, "author", message)["name"] == "Umberto Eco"
    message = wait_record(bodies, "bodies.book", 4, retained)
    assert message.value() == framed
    assert str(decode(bodies, "book", message)["id"]) == key
    for kind in ("author", "book"):
        removed = wait_record(bodies, f"bodies.{kind}", 4, insert(source_dsn, BODIES, kind, key, None))
        assert removed.value() is None


@pytest.mark.parametrize("payload", [bytes(range(256)), b"", None], ids=["every byte", "empty", "NULL"])
def test_passes_bytes_through_unchanged(bodies: Deployment, source_dsn: str, payload: bytes | None) -> None:
    message = wait_record(bodies, "bodies.scan", 1, insert(source_dsn, BODIES, "scan", "s", payload))
    assert (message.key(), message.value()) == (b"s", payload)


@pytest.mark.parametrize(
    ("version", "decoded"),
    [("1", {"id": "x", "shelf": "y"}), ("2", {"branch": "x", "id": "y"})],
)
def test_uses_the_schema_version_that_the_row_names(
    bodies: Deployment, source_dsn: str, version: str, decoded: dict[str, str]
) -> None:
    event = insert(source_dsn, BODIES, "loan", "x", b"\x02x\x02y", schema_version=version)
    message = wait_record(bodies, "bodies.loan", 1, event)
    assert schema_id(message) == ids_by_version(bodies, "loan")[int(version)]
    assert decode(bodies, "loan", message) == decoded


def test_dead_letter_for_an_ambiguous_schema_version(bodies: Deployment, source_dsn: str) -> None:
    """If there are several versions, the row must name one; if there is only one, it does not have to."""
    event = insert(source_dsn, BODIES, "loan", "x", b"\x02x\x02y")
    actual, row = read_dead_letter(bodies, event)
    assert actual["dead_letter_reason"] == "schema-version-unknown"
    assert row["schema_version"] is None


def frame(number: int) -> bytes:
    return b"\0" + number.to_bytes(4, "big")


def test_dead_letter_for_unreadable_bodies(bodies: Deployment, source_dsn: str) -> None:
    key = str(uuid4())
    book_schema_id = ids_by_version(bodies, "book")[1]
    broken = {
        "too short": ("author", author_body(bodies, key)[:-1]),
        "too long": ("author", author_body(bodies, key) + b"\0"),
        "empty": ("author", b""),
        "no frame": ("book", book_body(bodies, key)),
        "another schema's id": ("book", frame(ids_by_version(bodies, "author")[1]) + book_body(bodies, key)),
        "frame and half a body": ("book", frame(book_schema_id) + book_body(bodies, key)[:9]),
    }
    events = {reason: insert(source_dsn, BODIES, kind, key, payload) for reason, (kind, payload) in broken.items()}
    last = insert(source_dsn, BODIES, "author", key, author_body(bodies, key))
    wait_record(bodies, "bodies.author", 4, last)
    reasons = {reason: read_dead_letter(bodies, event)[0]["dead_letter_reason"] for reason, event in events.items()}
    assert reasons == dict.fromkeys(broken, "payload-invalid")
    assert connector_state(bodies) == RUNNING


def test_sends_an_avro_canary_to_a_bytea_column(bodies: Deployment) -> None:
    actual = verify(bodies, silent)
    # Dead letters of other tests are ignored.
    not_passed = {check.id for check in actual if check.status in (Status.FAIL, Status.WARN)}
    assert not_passed <= {"kafka.dead-letters"}
    canary = {check.id: check.status for check in actual if check.id.startswith("canary.")}
    assert set(canary.values()) == {Status.PASS}, canary
