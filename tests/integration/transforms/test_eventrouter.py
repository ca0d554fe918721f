"""Template outbox-postgres-eventrouter: Debezium's EventRouter with the settings of outbox-kit."""

from __future__ import annotations

import json
from uuid import uuid4

import psycopg
import pytest
from tests.integration.support import Deploy, headers, in_process, read_all, wait_record
from tests.integration.transforms.test_records import book, murmur2_partition, send

from outbox_events.waiting import Observation, wait_for
from outbox_kit.connect import state as connect_state
from outbox_kit.deployment import Deployment
from outbox_kit.results import silent
from outbox_kit.results.checks import Status
from outbox_kit.verification import verify

TABLE = "public.routed_event"


@pytest.fixture(scope="module")
def routed(deploy_once: Deploy) -> Deployment:
    return deploy_once("routed", connector={"name": "routed", "template": "outbox-postgres-eventrouter"})


def test_produces_json_text_with_the_raw_key(routed: Deployment, source_dsn: str) -> None:
    key = str(uuid4())
    payload = book(key, pages=None, price=0.1)
    message = wait_record(routed, "routed.book", 4, send(source_dsn, "book", key, payload, table=TABLE))
    assert message.key() == key.encode()
    assert message.partition() == murmur2_partition(key.encode(), 4)
    value = message.value()
    assert isinstance(value, bytes)
    with psycopg.connect(source_dsn) as connection:
        row = connection.execute(f"select payload::text from {TABLE} where aggregate_id = %s", (key,)).fetchone()
    assert row is not None
    # The payload is not expanded, so nulls and every digit are retained.
    assert json.loads(value) == json.loads(row[0]) == json.loads(json.dumps(payload))
    actual = headers(message)
    assert (actual["event_type"], actual["aggregate_type"]) == ("book_changed", "book")
    assert actual["id"] == actual["event_id"]
    assert actual["event_time"].endswith("Z")
    assert "source_sequence" not in actual


def test_produces_a_tombstone_for_a_null_payload(routed: Deployment, source_dsn: str) -> None:
    key = str(uuid4())
    message = wait_record(routed, "routed.book", 4, send(source_dsn, "book", key, None, table=TABLE))
    assert message.value() is None
    assert message.key() == key.encode()
    assert headers(message)["event_type"] == "book_changed"


def test_heartbeats_advance_the_slot_of_an_idle_outbox(routed: Deployment, source_dsn: str) -> None:
    """EventRouter passes heartbeats through. If it dropped heartbeats, WAL would be retained without limit."""
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        row = connection.execute("select pg_current_wal_insert_lsn()").fetchone()
        assert row is not None

        def poll() -> Observation[bool]:
            has_advanced = connection.execute(
                "select confirmed_flush_lsn > %s, confirmed_flush_lsn from pg_replication_slots"
                " where slot_name = 'routed_s'",
                row,
            ).fetchone()
            return Observation(True if has_advanced and has_advanced[0] else None, f"{has_advanced} of {row}")

        wait_for("the slot to move", poll, seconds=60)
    assert read_all(routed.environment.kafka, "__debezium-heartbeat.routed", 1)
    assert connect_state.stored_lsn(connect_state.read_actual(routed.connect, "routed")) > 0


def test_verify_passes(routed: Deployment) -> None:
    actual = verify(routed, silent)
    assert [check for check in actual if check.status in (Status.FAIL, Status.WARN)] == []
    canary = {check.id: check.status for check in actual if check.id.startswith("canary.")}
    assert set(canary.values()) == {Status.PASS}, canary


def test_verify_receives_its_canary_and_a_second_apply_changes_nothing(routed: Deployment) -> None:
    outbox = in_process(routed)
    done = outbox("verify", "--output", "json")
    checks = {check["id"]: check["status"] for check in json.loads(done.stdout)["checks"]}
    assert {checks[f"canary.{name}"] for name in ("delivered", "record", "tombstone")} == {"pass"}
    outbox("plan")
