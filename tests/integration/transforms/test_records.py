"""Records on the topics follow docs/contract.md, in the stack's worker."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import uuid4

import psycopg
from confluent_kafka import Message
from psycopg.rows import TupleRow
from tests.integration.support import Deploy, decode, headers, records, wait_confirmed, wait_record

from outbox_events import emit
from outbox_kit.connect import apply as connect_apply
from outbox_kit.connect import state as connect_state
from outbox_kit.deployment import Deployment, apply_prerequisites, make_plan
from outbox_kit.deployment.execution import start_position
from outbox_kit.results import silent


def book(key: str, **changes: object) -> dict[str, object]:
    """Return a valid payload of a book."""
    return {
        "id": key,
        "author_id": str(uuid4()),
        "title": "Il nome della rosa — “1”",
        "subtitle": None,
        "tags": ["roman", "abbey"],
        "price": Decimal("9999999999.99"),
        "published_on": "1980-01-01",
        "status": "AVAILABLE",
        "pages": 503,
        "updated_at": "2026-11-20T18:31:38.123456+00:00",
        **changes,
    }


def send(dsn: str, kind: str, key: str, payload: object, *, table: str = "public.outbox_event") -> str:
    """Write one event in its own transaction."""
    with psycopg.connect(dsn) as connection:
        return send_within(connection, kind, key, payload, table=table)


def send_within(connection: psycopg.Connection[TupleRow], kind: str, key: str, payload: object, *, table: str) -> str:
    """Write one event in the open transaction of a connection. Return its id."""
    event = emit(
        connection,
        aggregate_type=kind,
        aggregate_id=key,
        event_type=f"{kind}_changed",
        payload=payload,  # type: ignore[arg-type]
        headers={"traceparent": "00-1-2-01"},
        table=table,
    )
    return str(event)


def murmur2_partition(key: bytes, partitions: int) -> int:
    """Return the partition of Kafka's default partitioner (org.apache.kafka.common.utils.Utils.murmur2)."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = (0x9747B28C ^ len(key)) & mask
    for i in range(0, len(key) // 4 * 4, 4):
        k = int.from_bytes(key[i : i + 4], "little") * m & mask
        h = (h * m & mask) ^ ((k ^ k >> 24) * m & mask)
    tail = key[len(key) // 4 * 4 :]
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return ((h ^ h >> 15) & 0x7FFFFFFF) % partitions


def test_produces_the_record_of_the_contract(library: Deployment, source_dsn: str) -> None:
    key = str(uuid4())
    before = datetime.now(UTC) - timedelta(seconds=5)
    event = send(source_dsn, "book", key, book(key))
    message = wait_record(library, "library.book", 4, event)
    assert message.key() == key.encode()
    assert message.partition() == murmur2_partition(key.encode(), 4)
    assert before.timestamp() * 1000 < message.timestamp()[1] < datetime.now(UTC).timestamp() * 1000 + 5000
    actual = headers(message)
    assert actual["aggregate_type"] == "book"
    assert actual["event_type"] == "book_changed"
    assert actual["traceparent"] == "00-1-2-01"
    assert len(actual["source_sequence"]) == 38
    assert actual["event_time"].endswith("Z")
    decoded = decode(library, "book", message)
    assert decoded["title"] == "Il nome della rosa — “1”"
    assert decoded["price"] == Decimal("9999999999.99")
    assert decoded["published_on"].isoformat() == "1980-01-01"
    assert decoded["updated_at"] == datetime(2026, 11, 20, 18, 31, 38, 123456, UTC)
    assert decoded["subtitle"] is None


def test_keeps_the_partition_for_a_tombstone(library: Deployment, source_dsn: str) -> None:
    key = str(uuid4())
    first = wait_record(library, "library.book", 4, send(source_dsn, "book", key, book(key)))
    removed = wait_record(library, "library.book", 4, send(source_dsn, "book", key, None))
    assert removed.value() is None
    assert (removed.key(), removed.partition()) == (first.key(), first.partition())
    assert headers(removed)["source_sequence"] > headers(first)["source_sequence"]


def test_does_not_deliver_a_rolled_back_row(library: Deployment, source_dsn: str) -> None:
    key = str(uuid4())
    with psycopg.connect(source_dsn) as connection:
        emit(connection, aggregate_type="book", aggregate_id=key, event_type="x", payload=book(key))
        connection.rollback()
    after = str(uuid4())
    wait_record(library, "library.book", 4, send(source_dsn, "book", after, book(after)))
    assert key.encode() not in [message.key() for message in records(library, "library.book", 4)]


def test_dead_letter_for_rows_without_a_route_and_continues(library: Deployment, source_dsn: str) -> None:
    broken, unknown, valid = str(uuid4()), str(uuid4()), str(uuid4())
    events = {
        send(source_dsn, "book", broken, book(broken, pages="many")): "payload-invalid",
        send(source_dsn, "magazine", unknown, {"id": unknown}): "unknown-aggregate-type",
    }
    wait_record(library, "library.book", 4, send(source_dsn, "book", valid, book(valid)))
    dead_letters: dict[str, Message] = {
        headers(message)["event_id"]: message for message in records(library, "library.dead-letter", 1)
    }
    for event, reason in events.items():
        actual = headers(dead_letters[event])
        assert actual["dead_letter_reason"] == reason
        assert "many" not in actual["dead_letter_message"]
        row = json.loads(dead_letters[event].value() or b"")
        assert {
            "id",
            "aggregate_type",
            "aggregate_id",
            "payload",
            "created_at",
            "source_sequence",
        } <= row.keys()
        assert row["id"] == event
    # Other tests expect no dead letters.
    assert library.dead_letters().acknowledge() >= len(events)
    assert library.connect.status("library-outbox").text == "connector RUNNING, tasks: RUNNING"  # type: ignore[union-attr]


def test_transform_passes_heartbeats_and_transaction_metadata(deploy: Deploy, source_dsn: str) -> None:
    """Guards against ByteArrayConverter, which fails on heartbeats, and dropped heartbeats, which stall the slot."""
    connector = {"name": "beating", "template": "outbox-postgres", "transaction_metadata": True}
    deployment = deploy("beating", connector=connector)
    assert deployment.environment.connector.heartbeat_interval_ms == 1000
    key = str(uuid4())
    wait_record(deployment, "beating.book", 4, send(source_dsn, "book", key, book(key), table="public.beating_event"))
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute("create table unpublished as select repeat('x', 1000) from generate_series(1, 5000)")
    wait_confirmed(source_dsn, "beating_s")  # by heartbeats alone
    assert records(deployment, "__debezium-heartbeat.beating", 1)
    statuses = [json.loads(m.value() or b"")["status"] for m in records(deployment, "beating.transaction", 1)]
    assert statuses[:2] == ["BEGIN", "END"]
    assert deployment.connect.status("beating").text == "connector RUNNING, tasks: RUNNING"  # type: ignore[union-attr]


def test_keeps_seeded_offsets_over_a_restart_before_the_first_message(deploy: Deploy, source_dsn: str) -> None:
    """A row that follows a backlog of unpublished WAL must arrive despite a restart right after the start.

    Without a seed, the first heartbeat would store the server's current position, and the row would be lost.
    """
    deployment = deploy("seeded", applied=False)
    name = deployment.pipeline.connector.name
    # All steps except the start, which is the state after an apply that crashed before the start.
    lock = apply_prerequisites(deployment, make_plan(deployment), silent)
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute("create table backlog as select repeat(md5(i::text), 30) from generate_series(1, 70000) i")
    key = str(uuid4())
    event = send(source_dsn, "book", key, book(key), table="public.seeded_event")
    config = deployment.render(lock)
    start = start_position(deployment, lock, deployment.read_database())
    actual = connect_state.read_actual(deployment.connect, name)
    changes = connect_state.diff(name, config, actual)
    connect_apply.apply(deployment.connect, name, config, changes, start=start, progress=silent)
    deployment.connect.restart(name)
    wait_record(deployment, "seeded.book", 4, event)
