"""The transform chain with an Avro converter, in the stack's worker (docs/smt-chains.md, "Classic chain")."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Message
from tests.integration.support import Deploy, decode, headers, records, wait_confirmed, wait_record
from tests.integration.transforms.test_records import book, murmur2_partition, send

from outbox_events.waiting import Observation, wait_for
from outbox_kit.connect.client import ConnectorStatus
from outbox_kit.deployment import Deployment, apply, make_plan
from outbox_kit.results import silent
from outbox_kit.results.checks import Status
from outbox_kit.stack import StackState
from outbox_kit.stack.services.java import FAST_START_OPTIONS
from outbox_kit.verification import verify

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "records"
REGION = "north"
TABLE = "public.chain_event"
# Types that Connect lacks or that converters change: optional enums and records, maps, micro- and nanoseconds.
LOAN = {
    "type": "record",
    "name": "Loan",
    "namespace": "io.outboxkit.library",
    "fields": [
        {"name": "state", "type": ["null", {"type": "enum", "name": "LoanState", "symbols": ["OUT", "BACK"]}]},
        {
            "name": "reader",
            "type": [
                "null",
                {"type": "record", "name": "Reader", "fields": [{"name": "card", "type": ["null", "string"]}]},
            ],
        },
        {"name": "notes", "type": {"type": "map", "values": {"type": "array", "items": ["null", "long"]}}},
        {"name": "out_at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "back_at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}], "default": None},
        {"name": "fee", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]},
        {"name": "shelf", "type": ["null", "string"], "default": None},
    ],
}


@pytest.fixture(scope="module")
def loan_schema(project: Path) -> Path:
    path = project / "schemas" / "loan.avsc"
    path.write_text(json.dumps(LOAN))
    return path


@pytest.fixture(scope="module")
def chain(deploy_once: Deploy, loan_schema: Path, source_dsn: str) -> Deployment:
    """Deploy three aggregates, one of which has a partition_field. The column has a default."""
    aggregates = {
        "author": {"schema": "schemas/author.avsc", "partitions": 4},
        "book": {"schema": "schemas/book.avsc", "partitions": 4},
        "loan": {"schema": f"schemas/{loan_schema.name}", "partitions": 6, "partition_field": "region"},
    }
    connector = {"name": "chain", "template": "outbox-postgres-chain"}
    tables = [{"aggregate": "book", "target": "warehouse", "table": "chain_book"}]
    deployment = deploy_once("chain", connector=connector, aggregates=aggregates, materializations=tables)
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute(f"alter table {TABLE} alter column region set default '{REGION}'")
    return deployment


def key_text(message: Message) -> str:
    """Return the Avro string of a key in Confluent's wire format."""
    key = message.key()
    assert isinstance(key, bytes)
    length, remainder = divmod(key[5], 2)
    assert (key[0], remainder, len(key)) == (0, 0, 6 + length)
    return key[6:].decode()


def loan(**changes: object) -> dict[str, object]:
    return {
        "state": "OUT",
        "reader": {"card": "A-1"},
        "notes": {"pages": [1, None, 2**53 + 1]},
        "out_at": "2026-11-20T18:31:38.123Z",
        "back_at": "2026-11-20T18:31:38.123456Z",
        "fee": 1.25,
        "shelf": None,
        **changes,
    }


def test_produces_the_records_of_the_chain(chain: Deployment, source_dsn: str) -> None:
    assert make_plan(chain).changes == ()
    key, author = str(uuid4()), str(uuid4())
    first = wait_record(chain, "chain.book", 4, send(source_dsn, "book", key, book(key), table=TABLE))
    payload = {"id": author, "name": "Umberto Eco", "updated_at": "2026-11-20T18:31:38.123456Z"}
    author_record = wait_record(chain, "chain.author", 4, send(source_dsn, "author", author, payload, table=TABLE))
    changed = wait_record(chain, "chain.book", 4, send(source_dsn, "book", key, book(key, pages=1), table=TABLE))
    removed = wait_record(chain, "chain.book", 4, send(source_dsn, "book", key, None, table=TABLE))
    assert key_text(first) == key
    assert key_text(author_record) == author
    assert first.key() == changed.key() == removed.key()
    assert first.partition() == changed.partition() == removed.partition() == murmur2_partition(key.encode(), 4)
    decoded = decode(chain, "book", first)
    assert decoded["title"] == "Il nome della rosa — “1”"
    assert decoded["price"] == Decimal("9999999999.99")
    assert decoded["updated_at"] == datetime(2026, 11, 20, 18, 31, 38, 123456, UTC)
    assert decode(chain, "author", author_record)["pen_names"] == []
    assert decode(chain, "book", changed)["pages"] == 1
    assert removed.value() is None
    assert headers(removed).keys() == {"event_id", "event_type", "aggregate_type", "event_time"}


def test_verify_passes(chain: Deployment) -> None:
    actual = verify(chain, silent)
    assert [check for check in actual if check.status in (Status.FAIL, Status.WARN)] == []
    canary = {check.id: check.status for check in actual if check.id.startswith("canary.")}
    assert set(canary.values()) == {Status.PASS}, canary


@pytest.mark.long
def test_spark_job_reads_the_records(chain: Deployment, project: Path, state: StackState, source_dsn: str) -> None:
    """The table contains keys without their frame and the newest record by offset, but no deleted keys."""
    retained, removed = str(uuid4()), str(uuid4())
    for key in (retained, removed):
        send(source_dsn, "book", key, book(key), table=TABLE)
    send(source_dsn, "book", retained, book(retained, title="changed"), table=TABLE)
    wait_record(chain, "chain.book", 4, send(source_dsn, "book", removed, None, table=TABLE))
    done = subprocess.run(
        [sys.executable, "-m", "outbox_spark", "-p", "connectors/chain.yaml", "--output", "json"],
        cwd=project,
        env={"SPARK_SUBMIT_OPTS": FAST_START_OPTIONS, **os.environ},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["materializations"][0]["quarantined"] == 0
    with psycopg.connect(state.target) as connection:
        query = "select aggregate_id, title from chain_book where aggregate_id = any(%s)"
        assert connection.execute(query, ([retained, removed],)).fetchall() == [(retained, "changed")]


@pytest.mark.parametrize("changes", [{}, {"state": None, "reader": None, "back_at": None, "fee": None}], ids=str)
def test_delivers_every_type_as_declared(chain: Deployment, source_dsn: str, changes: dict[str, object]) -> None:
    """Values are encoded with the registered schema, with logical types and enums. The column sets the partition."""
    event = send(source_dsn, "loan", str(uuid4()), loan(**changes), table=TABLE)
    message = wait_record(chain, "chain.loan", 6, event)
    assert message.partition() == murmur2_partition(REGION.encode(), 6)
    expected = {
        **loan(),
        "out_at": datetime(2026, 11, 20, 18, 31, 38, 123000, UTC),
        "back_at": datetime(2026, 11, 20, 18, 31, 38, 123456, UTC),
        "fee": Decimal("1.25"),
    }
    assert decode(chain, "loan", message) == {**expected, **changes}


def test_delivers_a_backlog_of_the_old_schema_after_an_upgrade(
    chain: Deployment, loan_schema: Path, source_dsn: str
) -> None:
    """Otherwise, the newest version would be used for any payload, and fields would be swapped without an error."""
    before = wait_record(chain, "chain.loan", 6, send(source_dsn, "loan", str(uuid4()), loan(), table=TABLE))
    newer = [{"name": "branch", "type": "string", "default": "main"}, *LOAN["fields"][:-1]]
    loan_schema.write_text(json.dumps({**LOAN, "fields": newer}))
    apply(chain, silent)
    old = wait_record(chain, "chain.loan", 6, send(source_dsn, "loan", str(uuid4()), loan(shelf="S"), table=TABLE))
    payload = loan(branch="west")
    del payload["shelf"]
    new = wait_record(chain, "chain.loan", 6, send(source_dsn, "loan", str(uuid4()), payload, table=TABLE))
    assert schema_id(old) == schema_id(before) != schema_id(new)
    assert decode(chain, "loan", old)["shelf"] == "S"
    assert decode(chain, "loan", new)["branch"] == "west"


def schema_id(message: Message) -> int:
    return int.from_bytes((message.value() or b"")[1:5], "big")


def test_heartbeats_advance_the_slot(chain: Deployment, source_dsn: str) -> None:
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute("create table unchained as select repeat('x', 1000) from generate_series(1, 5000)")
    wait_confirmed(source_dsn, "chain_s")  # by heartbeats alone
    assert {message.value() for message in records(chain, "__debezium-heartbeat.chain", 1)} == {None}


def test_stops_the_task_with_a_reason_for_an_invalid_row(deploy: Deploy, source_dsn: str) -> None:
    deployment = deploy("chainstop", connector={"name": "chainstop", "template": "outbox-postgres-chain"})
    key = str(uuid4())
    send(source_dsn, "book", key, book(key, title="secret", pages="many"), table="public.chainstop_event")

    def poll() -> Observation[ConnectorStatus]:
        status = deployment.connect.status("chainstop")
        assert status is not None
        return Observation(status if "FAILED" in status.text else None, status.text)

    trace = str(wait_for("the task to fail", poll, seconds=60))
    assert "Field value.payload on topic chainstop.book fits none of the schema versions [1]" in trace
    assert "pages: expected" in trace
    assert "secret" not in trace


def described(message: Message) -> dict[str, Any]:
    """Return a record in the form of its golden file, which masks schema ids and values that differ between runs."""
    key, value = message.key(), message.value()
    assert isinstance(key, bytes)
    assert isinstance(value, bytes)
    masked = {name: "*" if name == "source_sequence" else text for name, text in headers(message).items()}
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "key": f"00 <schema id> {key[5:].hex()}" if key[0] == 0 else key.hex(),
        "value": f"00 <schema id> {value[5:].hex()}",
        "headers": masked,
    }


@pytest.fixture
def router(deploy: Deploy) -> Deployment:
    """Deploy OutboxRouter in a separate pipeline, because the demo test compares topics of `library` with tables."""
    return deploy("router")


@pytest.mark.parametrize("template", ["outbox-postgres", "outbox-postgres-chain"])
def test_golden_records(template: str, request: pytest.FixtureRequest, source_dsn: str) -> None:
    """The templates send records of the same row with different contracts but the same payload."""
    name, table = ("chain", TABLE) if template.endswith("chain") else ("router", "public.router_event")
    deployment: Deployment = request.getfixturevalue(name)
    event, key = "6f1c1f0e-3c1b-4d8e-9a53-0d6a2f9b7c11", "0190f2c4-8f6d-7c3a-a1f0-3f8f4d3b2a11"
    payload = json.dumps(book(key, author_id=key, price=12.5))
    with psycopg.connect(source_dsn) as connection:
        connection.execute(
            f"insert into {table} (id, aggregate_type, aggregate_id, event_type, payload, headers, created_at) "
            "values (%s, 'book', %s, 'book_changed', %s, '{\"traceparent\": \"00-1-2-01\"}', "
            "'2026-11-20 18:31:38.1+00')",
            (event, key, payload),
        )
    actual = described(wait_record(deployment, f"{name}.book", 4, event))
    path = GOLDEN / f"{template}.json"
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(actual, indent=2) + "\n", encoding="utf-8")
    assert actual == json.loads(path.read_text(encoding="utf-8")), "meant? then UPDATE_GOLDEN=1, and read the diff"


def test_both_contracts_have_the_same_payload() -> None:
    router, chain = (
        json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("outbox-postgres", "outbox-postgres-chain")
    )
    assert router["value"] == chain["value"]
    assert router["partition"] == chain["partition"]
    assert chain["key"].endswith(router["key"])
