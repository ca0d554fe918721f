"""Quarantined records whose schema is added to the registry later."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import structs
from pyspark.sql import SparkSession
from tests.spark import kafka_log
from tests.spark.kafka_log import Log, Schemas, framed, sequence
from tests.spark.live_topic import LiveTopic
from tests.spark.table_under_test import Target, set_clock
from tests.spark.thing_records import THING, CrashError, crash, delete, put

from outbox_events.errors import RefusedError, UnreachableError
from outbox_spark.decoding.quarantine_reasons import Reason
from outbox_spark.jobs.model import MissedTombstones, Mode, Outcome, Status
from outbox_spark.runs import retry_quarantined as module
from outbox_spark.runs.materialize_table import materialize

GUID = "0123abcd-0000-4000-8000-00000000000f"
LATER: dict[str, Any] = {**THING, "fields": [*THING["fields"], {"name": "extra", "type": "string"}]}  # type: ignore[misc]


@pytest.fixture(autouse=True)
def _recent_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write records within the retention of the ledger."""
    monkeypatch.setattr(kafka_log, "START", datetime.now(UTC) - timedelta(hours=1))


def later(log: Log, key: str, commit: int, header: bytes | None = None) -> None:
    """Append a record whose schema is not in the registry yet. The schema id is in the value or in a header."""
    raw = framed(LATER, 7, {"n": commit, "extra": "x"})
    headers = {} if header is None else {"__value_schema_id": header}
    log.append(key, raw if header is None else raw[5:], sequence(commit), headers=headers)


def filled(spark: SparkSession, target: Target) -> tuple[LiveTopic, Schemas]:
    """Return a topic whose table is up to date, with six quarantined records."""
    log, schemas = Log("test.thing", partitions=1), Schemas({1: THING}, newest=1)
    live = LiveTopic(spark, log, schemas)
    put(log, "a", 1)
    put(log, "b", 2)
    later(log, "a", 11)
    later(log, "b", 12)
    later(log, "gone", 13)
    later(log, "id in header", 14, b"\x00\x00\x00\x00\x07")
    later(log, "guid", 15, b"\x01" + uuid.UUID(GUID).bytes)
    log.append("broken", b"\x00\x00\x00\x00\x07\xff", sequence(16))
    put(log, "new", 17)
    assert run(target, live).quarantined == 6
    put(log, "b", 20)
    delete(log, "gone", 21)
    run(target, live)
    return live, schemas


def run(target: Target, live: LiveTopic) -> Outcome:
    return materialize(target.spark, target.job, lambda _: None, topic=live.topic())


def state(target: Target) -> dict[str, tuple[int, bool]]:
    return {row["aggregate_id"]: (row["n"], row["_stale"]) for row in target.rows()}


BEFORE = {"a": (1, True), "b": (20, False), "new": (17, False)}
AFTER = {"a": (11, False), "b": (20, False), "new": (17, False), "id in header": (14, False), "guid": (15, False)}


def test_applies_records_whose_schema_the_registry_learns(
    spark: SparkSession, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    live, schemas = filled(spark, target)
    committed = target.committed()
    assert committed is not None
    assert (state(target), set(committed.unknown_schemas)) == (BEFORE, {7, GUID})
    with monkeypatch.context() as patch:
        patch.setattr(module, "_apply", crash)  # nothing is read or written without a new schema
        assert run(target, live).status is Status.UNCHANGED
    schemas.by_number[7] = schemas.by_name[GUID] = LATER
    with monkeypatch.context() as patch:
        with target.open() as table:
            patch.setattr(type(table), "update_quarantined", crash)
        with pytest.raises(CrashError):
            run(target, live)
    assert state(target) == AFTER
    reads = len(live.reads)
    assert run(target, live).status is Status.CHANGED
    assert len(live.reads) == reads
    assert state(target) == AFTER
    assert [(row["aggregate_id"], row["reason"]) for row in target.rows("__quarantine")] == [("broken", "undecodable")]
    committed = target.committed()
    assert committed is not None
    assert (committed.unknown_schemas, committed.offsets) == ((), live.log.end())
    assert run(target, live).status is Status.UNCHANGED


def test_restores_no_key_whose_deletion_has_expired(
    spark: SparkSession, postgres_target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the check of `ledger_since`, the key `gone` would get a row."""
    live, schemas = filled(spark, postgres_target)
    with postgres_target.open() as table:
        table.committed()
        entry = postgres_target.rows("__tombstones")[0]
        assert table.expire_ledger(entry["_timestamp"].replace(year=2027)) == 1
    actual = module.retry_quarantined
    monkeypatch.setattr(
        "outbox_spark.runs.materialize_table.retry_quarantined",
        lambda job, table, committed, *rest: actual(
            job, table, replace(committed, ledger_since=entry["_timestamp"].replace(year=2027)), *rest
        ),
    )
    schemas.by_number[7] = LATER
    run(postgres_target, live)
    assert state(postgres_target) == BEFORE


def test_continues_without_the_registry(
    spark: SparkSession, postgres_target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    live, schemas = filled(spark, postgres_target)
    requested: list[int | str] = []

    def unreachable(key: int | str) -> str | None:
        requested.append(key)
        raise UnreachableError("the registry does not respond")

    monkeypatch.setattr(schemas, "schema", unreachable)
    messages: list[str] = []
    outcome = materialize(spark, postgres_target.job, messages.append, topic=live.topic())
    assert outcome.status is Status.UNCHANGED
    assert len(requested) == 1
    assert any(line.startswith("warning:") and "the registry does not respond" in line for line in messages)


def test_applies_nothing_while_tombstones_may_have_been_missed(
    spark: SparkSession, postgres_target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tombstone of `a` is newer than the quarantined record of `a`, and was compacted before it was read."""
    live, schemas = filled(spark, postgres_target)
    before = state(postgres_target)
    delete(live.log, "a", 31)
    put(live.log, "z", 32)
    live.compact("a")
    schemas.by_number[7] = schemas.by_name[GUID] = LATER
    set_clock(monkeypatch, lambda: datetime.now(UTC) + timedelta(days=2))
    options = structs.replace(postgres_target.job.options, missed_tombstones=MissedTombstones.REFUSE)
    job = structs.replace(postgres_target.job, options=options)
    with pytest.raises(RefusedError, match="may miss tombstones"):
        materialize(spark, job, lambda _: None, topic=live.topic())
    assert state(postgres_target) == before
    with monkeypatch.context() as patch:
        patch.setattr("outbox_spark.runs.materialize_table._apply_all", crash)
        with pytest.raises(CrashError):
            run(postgres_target, live)
    assert state(postgres_target) == before
    for _ in range(2):  # the second run applies quarantined records again
        run(postgres_target, live)
        assert "a" not in state(postgres_target)


def test_newer_unknown_schemas_replace_older_ones(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [(Reason.UNKNOWN_SCHEMA_ID, 7, b"\x00\x00\x00\x00\x07", None), (None, 1, None, None)],
        "__outbox_reason string, __outbox_schema_id int, __outbox_value binary, __outbox_schema_header binary",
    )
    known_before = range(100, 100 + module.MAX_SCHEMAS)
    assert module.unknown_schemas_of(rows, known_before) == (7, *known_before[:-1])


@pytest.mark.parametrize("kind", ["postgres", pytest.param("delta", marks=pytest.mark.long)])
def test_adds_versions_to_history_tables(spark: SparkSession, kind: str, request: pytest.FixtureRequest) -> None:
    target: Target = request.getfixturevalue(f"{kind}_target").in_mode(Mode.HISTORY)
    live, schemas = filled(spark, target)
    schemas.by_number[7] = schemas.by_name[GUID] = LATER
    run(target, live)
    rows = sorted((row["aggregate_id"], row["n"], row["_valid_to"] is None, row["_stale"]) for row in target.rows())
    assert rows == [
        ("a", 1, False, False),
        ("a", 11, True, False),
        ("b", 2, False, False),
        ("b", 12, False, False),
        ("b", 20, True, False),
        ("gone", 13, False, False),
        ("guid", 15, True, False),
        ("id in header", 14, True, False),
        ("new", 17, True, False),
    ]
