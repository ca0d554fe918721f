"""Canary: comparison of its record with the contract, and the statements that write its row."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import fastavro
import pytest
from confluent_kafka import Message

from outbox_events.contract.partitioner import murmur2, partition_of
from outbox_kit.deployment import Deployment
from outbox_kit.pipeline import CANARY_AGGREGATE, Columns, Lock
from outbox_kit.results.checks import Check, Status, evaluate
from outbox_kit.verification import canary
from outbox_kit.verification.canary import Arrival, CanaryContract, Delivery

TOKEN = "7d0e6f"
SEQUENCE = "0002_000000000000abcd-000000000000abce"
HEADERS = [("aggregate_type", CANARY_AGGREGATE.encode()), ("source_sequence", SEQUENCE.encode())]


@pytest.fixture
def value(lock: Lock) -> bytes:
    """Return a valid value, which consists of magic byte, schema id and body."""
    entry = lock.schemas[CANARY_AGGREGATE][0]
    buffer = io.BytesIO()
    record = {"token": TOKEN, "written_at": 0}
    fastavro.schemaless_writer(buffer, json.loads(entry.text), record)
    return struct.pack(">bI", 0, entry.id) + buffer.getvalue()


def record(value: bytes | None, **changes: Any) -> Message:  # noqa: ANN401 - arguments of Message
    return Message(**{"key": b"outbox-canary", "headers": HEADERS, "value": value, "partition": 0, **changes})


def contract_of(lock: Lock, **changes: Any) -> CanaryContract:  # noqa: ANN401 - fields of CanaryContract
    schemas = {entry.id: entry.text for entry in lock.schemas[CANARY_AGGREGATE]}
    return CanaryContract(**{"is_strict": True, "partition_count": 1, "source_epoch": 2, "schemas": schemas, **changes})


def checks_of(message: Message, tombstone: Message, contract: CanaryContract, seconds: float = 0.1) -> dict[str, Check]:
    delivery = Delivery(
        "library.outbox-canary", contract, TOKEN, 60, Arrival(message, seconds), Arrival(tombstone, seconds)
    )
    return {check.id: check for check in evaluate(canary.RULES, delivery)}


def record_check(message: Message, lock: Lock) -> Check:
    return checks_of(message, record(None), contract_of(lock))["canary.record"]


def test_accepts_a_valid_record(value: bytes, lock: Lock) -> None:
    check = record_check(record(value), lock)
    assert check.id == "canary.record"
    assert (check.status, check.seen) == (Status.PASS, "key, headers, schema id and payload as sent")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"key": b"other"}, "wrong key"),
        ({"key": None}, "wrong key"),
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
    check = record_check(record(value, **changes), lock)
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
def test_rejects_an_unsortable_sequence(value: bytes, lock: Lock, sequence: str) -> None:
    headers = [HEADERS[0], ("source_sequence", sequence.encode())]
    assert record_check(record(value, headers=headers), lock).seen == "header source_sequence is missing or malformed"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda _: None, "the value is null"),
        (lambda _: b"", "the value has no schema id"),
        (lambda valid: valid[:5], "the value has no schema id"),
        (lambda valid: b"\x01" + valid[1:], "the value has no schema id"),
        (lambda valid: b"\x00\x00\x00\x00\x63" + valid[5:], "schema id 99 is not in the lock file"),
        (lambda _: b'{"token": "x"}', "schema id"),
        (lambda valid: valid.replace(TOKEN.encode(), b"OTHER!"), "the payload does not decode to the token"),
        # a valid frame with an invalid body
        (lambda valid: valid[:6], "decode"),
        (lambda valid: valid[:5] + b"\x01", "decode"),
        (lambda valid: valid[:5] + b"\x04\xff\xff\x00", "decode"),
    ],
    ids=[
        "null",
        "empty",
        "no body",
        "magic byte",
        "unknown id",
        "json",
        "other token",
        "truncated",
        "negative",
        "no text",
    ],
)
def test_checks_values(value: bytes, lock: Lock, change: Any, problem: str) -> None:  # noqa: ANN401
    check = record_check(record(change(value)), lock)
    assert check.status is Status.FAIL
    assert problem in check.seen
    assert TOKEN not in check.seen
    assert check.remedy


def test_rejects_a_schema_missing_in_the_lock_file(value: bytes, lock: Lock) -> None:
    actual = checks_of(record(value), record(None), contract_of(lock, schemas={}))["canary.record"]
    assert actual.seen == "schema id 5 is not in the lock file"


def test_rejects_another_source_epoch(value: bytes, lock: Lock) -> None:
    """Sinks ignore records of an older epoch."""
    actual = checks_of(record(value), record(None), contract_of(lock, source_epoch=3))["canary.record"]
    assert (actual.status, actual.seen) == (Status.FAIL, "source epoch 2, not 3")
    assert "`outbox apply`" in actual.remedy


def test_a_source_epoch_above_that_of_the_lock_file_needs_the_lock_file(value: bytes, lock: Lock) -> None:
    """`outbox apply` refuses an outdated lock file."""
    actual = checks_of(record(value), record(None), contract_of(lock, source_epoch=1))["canary.record"]
    assert (actual.status, actual.seen) == (Status.FAIL, "source epoch 2, not 1")
    assert actual.remedy.startswith("restore the lock file from version control")


@pytest.mark.parametrize(
    ("key", "value", "status"),
    [
        (b"outbox-canary", b"{}", Status.PASS),
        (b"\x00\x00\x00\x00\x07\x1aoutbox-canary", b"body", Status.PASS),
        (b"another", b"{}", Status.FAIL),
        (None, b"{}", Status.FAIL),
    ],
)
def test_identifies_records_of_other_templates_by_key(
    lock: Lock, key: bytes | None, value: bytes, status: Status
) -> None:
    contract = contract_of(lock, is_strict=False)
    headers = [("event_id", b"x")]
    actual = checks_of(record(value, key=key, headers=headers), record(None, key=key), contract)
    assert actual["canary.record"].status is status
    assert actual["canary.tombstone"].status is status


def test_passes_all_checks_for_a_delivered_canary(value: bytes, lock: Lock) -> None:
    actual = checks_of(record(value), record(None), contract_of(lock))
    assert list(actual) == [item.id for item in canary.RULES]
    assert {check.status for check in actual.values()} == {Status.PASS}
    assert actual["canary.delivered"].seen.startswith("library.outbox-canary partition 0 offset")


def test_warns_about_a_slow_canary(value: bytes, lock: Lock) -> None:
    actual = checks_of(record(value), record(None), contract_of(lock), seconds=5.01)["canary.latency"]
    assert (actual.status, actual.seen) == (Status.WARN, "5.01 s")


@pytest.mark.parametrize(
    ("state", "tombstone", "status"), [(2, 2, Status.PASS), (0, 0, Status.FAIL), (2, 1, Status.FAIL)]
)
def test_partition_follows_the_key(value: bytes, lock: Lock, state: int, tombstone: int, status: Status) -> None:
    contract = contract_of(lock, partition_count=4)
    assert partition_of(b"outbox-canary", 4) == 2, "the partition of the parameters"
    actual = checks_of(record(value, partition=state), record(None, partition=tombstone), contract)
    assert actual["canary.partition"].status is status


@pytest.mark.parametrize(
    ("changes", "seen"),
    [({"value": b"x"}, "non-null value, same key"), ({"key": b"other"}, "null value, different key")],
)
def test_rejects_records_that_are_not_tombstones(value: bytes, lock: Lock, changes: dict[str, Any], seen: str) -> None:
    actual = checks_of(
        record(value), record(None, **changes) if "value" not in changes else record(b"x"), contract_of(lock)
    )
    assert (actual["canary.tombstone"].status, actual["canary.tombstone"].seen) == (Status.FAIL, seen)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2(key: bytes, expected: int) -> None:
    """The values come from Kafka's UtilsTest."""
    assert murmur2(key) == expected & 0xFFFFFFFF


class _Connection:
    """Connection that records statements."""

    def __init__(self) -> None:
        self.statements: list[tuple[str, list[Any]]] = []

    @contextmanager
    def transaction(self) -> Iterator[None]:
        before = len(self.statements)
        yield
        self.statements[before:] = [
            (f"in one transaction: {text}", values) for text, values in self.statements[before:]
        ]

    def execute(self, statement: Any, values: Any) -> None:  # noqa: ANN401 - text or composed
        text = statement if isinstance(statement, str) else statement.as_string(None)
        self.statements.append((text, list(values)))


@pytest.fixture
def sent(
    deployed: Callable[..., Deployment], lock: Lock, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., _Connection]:
    """Return a function that sends a canary and returns the connection with the statements."""

    def send(
        payload: canary.Payload | None, field: str | None = None, payload_format: str = "json", **changes: object
    ) -> _Connection:
        connection = _Connection()
        monkeypatch.setattr(canary, "connect_database", lambda _: nullcontext(connection))
        deployment = deployed()
        pipeline = deployment.pipeline
        book = pipeline.aggregates["book"].model_copy(update={"partition_field": field, "payload": payload_format})
        pipeline = pipeline.model_copy(
            update={
                "source": pipeline.source.model_copy(update=changes),
                "aggregates": {**pipeline.aggregates, "book": book},
            }
        )
        event = canary.send(replace(deployment, pipeline=pipeline), contract_of(lock), "canary_sent", payload)
        assert event in str(connection.statements)
        return connection

    return send


AT = datetime(2026, 11, 20, 18, 31, 38, 123456, UTC)


@pytest.mark.parametrize("payload_format", ["json", "text", "avro", "confluent-avro"])
def test_payload_matches_the_column_type(sent: Callable[..., _Connection], lock: Lock, payload_format: str) -> None:
    """A bytea column gets Avro in Confluent's wire format, which does not require a column for the schema version."""
    (_, values), _ = sent({"token": "t", "written_at": AT}, payload_format=payload_format).statements
    if payload_format in ("json", "text"):
        assert values[-1] == '{"token": "t", "written_at": "2026-11-20T18:31:38.123456+00:00"}'
    else:
        schema = json.loads(lock.schemas[CANARY_AGGREGATE][0].text)
        assert values[-1][:5] == struct.pack(">bI", 0, lock.schemas[CANARY_AGGREGATE][0].id)
        assert fastavro.schemaless_reader(io.BytesIO(values[-1][5:]), schema, None) == {"token": "t", "written_at": AT}
    (_, values), _ = sent(None, payload_format=payload_format).statements
    assert values[-1] is None


def test_row_uses_column_names_and_is_deleted_immediately(sent: Callable[..., _Connection]) -> None:
    columns = Columns.model_validate({"id": "event_id", "payload": "body"})
    (insert, values), (delete, deleted) = sent({"token": "t"}, table="app.events", columns=columns).statements
    names = '"event_id", "aggregate_type", "aggregate_id", "event_type", "body"'
    assert insert == f'in one transaction: insert into "app"."events" ({names}) values (%s, %s, %s, %s, %s)'
    assert delete == 'in one transaction: delete from "app"."events" where "event_id" = %s'
    assert values[1:] == [CANARY_AGGREGATE, "outbox-canary", "canary_sent", '{"token": "t"}']
    assert deleted == values[:1]


@pytest.mark.parametrize(("field", "more"), [("tenant", ["0"]), ("event_type", [])])
def test_fills_partition_columns_of_other_aggregates(
    sent: Callable[..., _Connection], field: str, more: list[str]
) -> None:
    insert, values = sent(None, field).statements[0]
    assert insert.count(f'"{field}"') == 1
    assert len(values) == 5 + len(more)
    assert values[3:] == ["canary_sent", None, *more]


@pytest.mark.parametrize("payload", [{"token": "t"}, None])
def test_sends_a_logical_message_without_a_table(
    sent: Callable[..., _Connection], payload: dict[str, str] | None
) -> None:
    ((statement, (prefix, content)),) = sent(payload, message_prefix="outbox").statements
    assert statement == "in one transaction: select pg_logical_emit_message(true, %s::text, %s::text)"
    assert prefix == "outbox"
    message = json.loads(content)
    assert message["payload"] == payload
    assert message["aggregate_type"] == CANARY_AGGREGATE
    assert message.keys() == {"id", "aggregate_type", "aggregate_id", "event_type", "payload", "created_at"}
