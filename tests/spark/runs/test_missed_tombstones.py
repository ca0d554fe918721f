"""Missed tombstones and expiry of the ledger, after a long pause between runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Self

import pytest
from msgspec import structs
from pyspark.sql import SparkSession
from tests.spark.kafka_log import START, Log
from tests.spark.live_topic import LiveTopic
from tests.spark.table_under_test import Target, set_clock
from tests.spark.thing_records import SCHEMAS, delete, put

from outbox_events.errors import RefusedError
from outbox_spark.jobs.model import (
    MaterializeOptions,
    MissedTombstones,
    Ordering,
    Outcome,
    ReadRange,
    Status,
    TableProgress,
)
from outbox_spark.kafka.offset_ranges import TopicDescription
from outbox_spark.runs import materialize_table
from outbox_spark.runs.materialize_table import materialize
from outbox_spark.runs.missed_tombstones import TombstoneRetention

DAY = timedelta(days=1)
DAY_SECONDS = 86400
Clock = Callable[[timedelta], None]


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return a function that advances the target's clock, which starts shortly after the time of the log's records."""
    time = START + timedelta(minutes=1)

    def move(by: timedelta) -> None:
        nonlocal time
        time += by

    set_clock(monkeypatch, lambda: time)
    return move


def two_rows(spark: SparkSession) -> LiveTopic:
    log = Log("test.thing", partitions=1)
    put(log, "a", 1)
    put(log, "b", 2)
    return LiveTopic(spark, log, SCHEMAS)


def run(
    target: Target, live: LiveTopic, messages: list[str] | None = None, max_records: int = 100, **options: object
) -> Outcome:
    job = structs.replace(target.job, options=MaterializeOptions(**options))  # type: ignore[arg-type]
    messages = [] if messages is None else messages
    return materialize(target.spark, job, messages.append, max_records, topic=live.topic())


def skip_offsets(log: Log, count: int) -> None:
    """Skip `count` offsets before the next record of partition 0. Each offset adds a second to its timestamp."""
    log.ends[0] += count


def lose_tombstone(live: LiveTopic) -> None:
    """Delete `a`, and compact its tombstone."""
    delete(live.log, "a", 3)
    put(live.log, "c", 4)
    live.compact("a")


def test_late_run_deletes_rows_with_missed_tombstones(spark: SparkSession, target: Target, later: Clock) -> None:
    live, messages = two_rows(spark), list[str]()
    run(target, live, messages)
    assert any("create the table, and read 2 offsets" in line for line in messages)
    lose_tombstone(live)
    later(DAY * 4)
    outcome = run(target, live, messages)
    assert set(target.state()) == {"b", "c"}
    assert (outcome.upserts, outcome.deletes) == (1, 1)
    assert any("last up to date 4 days ago" in line and "24.0 h (delete.retention.ms)" in line for line in messages)
    assert any("the tombstones of 1 rows were missed; 1 of these rows were deleted" in line for line in messages)
    # The next run does not compare.
    put(live.log, "d", 5)
    messages.clear()
    run(target, live, messages)
    assert not any("tombstones" in line or "create" in line for line in messages)


def test_next_run_compares_after_a_crash(
    spark: SparkSession, target: Target, later: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = two_rows(spark)
    run(target, live)
    lose_tombstone(live)
    later(DAY * 4)

    def crash(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(materialize_table, "compare_with_topic", crash)
        with pytest.raises(ZeroDivisionError):
            run(target, live)
    assert set(target.state()) == {"a", "b", "c"}
    assert run(target, live).status is Status.CHANGED
    assert set(target.state()) == {"b", "c"}


def test_rejects_a_late_run_where_configured(spark: SparkSession, target: Target, later: Clock) -> None:
    live = two_rows(spark)
    run(target, live)
    put(live.log, "c", 3)
    later(DAY * 2)
    with pytest.raises(RefusedError, match=r"last up to date 48\.0 h ago") as refused:
        run(target, live, missed_tombstones=MissedTombstones.REFUSE)
    assert "outbox-reconcile --repair" in refused.value.hint
    assert "outbox-rebuild" in refused.value.hint
    assert set(target.state()) == {"a", "b"}


def test_expires_ledger_entries_and_records_the_time(spark: SparkSession, target: Target, later: Clock) -> None:
    live = two_rows(spark)
    delete(live.log, "a", 3)
    put(live.log, "c", 4)
    run(target, live, tombstone_ttl=DAY_SECONDS // 2)
    assert [row["aggregate_id"] for row in target.rows("__tombstones")] == ["a"]
    later(DAY * 3 / 4)
    skip_offsets(live.log, DAY_SECONDS * 3 // 4)
    delete(live.log, "b", 5)
    live.delete_retention = DAY * 9
    run(target, live, tombstone_ttl=DAY_SECONDS // 2)
    assert [row["aggregate_id"] for row in target.rows("__tombstones")] == ["b"]
    committed = target.committed()
    assert committed is not None
    assert committed.ledger_since == live.timestamp(live.log.records[-1]) - DAY / 2


def test_fast_clock_removes_no_ledger_entries(spark: SparkSession, target: Target, later: Clock) -> None:
    """An older state of a deleted key is sent again while the target's clock is a month ahead."""
    live = two_rows(spark)
    delete(live.log, "a", 3)
    run(target, live, tombstone_ttl=DAY_SECONDS)
    later(DAY * 31)
    put(live.log, "c", 4)
    run(target, live, tombstone_ttl=DAY_SECONDS)
    put(live.log, "a", 1)
    run(target, live, tombstone_ttl=DAY_SECONDS)
    assert set(target.state()) == {"b", "c"}
    assert [row["aggregate_id"] for row in target.rows("__tombstones")] == ["a"]


def test_compares_after_a_run_with_a_fast_clock(spark: SparkSession, target: Target, later: Clock) -> None:
    live = two_rows(spark)
    later(DAY * 31)
    run(target, live)
    lose_tombstone(live)
    later(-DAY * 29)
    run(target, live)
    assert set(target.state()) == {"b", "c"}


class MonthAhead(datetime):
    """The clock of a driver that is a month ahead."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return super().now(tz) + 30 * DAY


@pytest.mark.parametrize("name", ["postgres_target", "delta_target"])
def test_time_is_that_of_the_target(name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    target: Target = request.getfixturevalue(name)
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith("outbox_spark.") and getattr(module, "datetime", None) is datetime:
            monkeypatch.setattr(module, "datetime", MonthAhead)
    with target.open() as table:
        assert abs(table.current_time() - datetime.now(UTC)) < DAY


# Tests of decisions, without Spark.

STATE = TopicDescription("test.thing", "id", {0: 0}, {0: 9})
NOTHING, SOME = (ReadRange("test.thing", "id", 0, {0: start}, {0: 9}) for start in (9, 5))


def progress(at: datetime | None, since: datetime | None = None, offset: int = 5) -> TableProgress:
    return TableProgress("test.thing", "id", 0, Ordering.SEQUENCE, {0: offset}, 3, at, since)


def retention_of(target: Target, previous: TableProgress | None, **options: object) -> TombstoneRetention:
    job = structs.replace(target.job, options=MaterializeOptions(**options))  # type: ignore[arg-type]
    clock = target.open().current_time
    return TombstoneRetention(job, STATE, previous, clock(), clock)


@pytest.fixture
def noon(delta_target: Target, later: Clock) -> datetime:
    del later
    return delta_target.open().current_time()


def test_only_the_last_batch_advances_the_time(delta_target: Target, noon: datetime) -> None:
    at = noon - DAY / 2
    due = retention_of(delta_target, progress(at))
    assert due.advance(progress(noon), noon, read_range=SOME, is_last=False).committed_at == at
    assert due.advance(progress(noon), noon, read_range=SOME, is_last=True).committed_at == noon
    late = retention_of(delta_target, progress(noon - 2 * DAY))
    assert late.advance(progress(noon), noon, read_range=SOME, is_last=True).committed_at is None
    unknown = retention_of(delta_target, progress(None))
    assert unknown.advance(progress(noon), noon, read_range=NOTHING, is_last=True).committed_at is None
    assert unknown.may_miss_tombstones(NOTHING)
    assert unknown.commit_is_due


def test_compares_after_a_first_run_longer_than_the_retention(
    delta_target: Target, noon: datetime, later: Clock
) -> None:
    first = retention_of(delta_target, None)
    assert not first.may_miss_tombstones(SOME)
    later(2 * DAY)
    assert first.may_miss_tombstones(SOME)
    assert first.advance(progress(noon), noon, read_range=SOME, is_last=True).committed_at is None
    # If the run stops before the last batch, the time of its start is committed.
    assert first.advance(progress(None), noon, read_range=SOME, is_last=False).committed_at == noon


@pytest.mark.parametrize(("age", "due"), [(DAY / 4, False), (DAY * 3 / 4, True), (DAY * 9, True)])
def test_records_the_check_of_an_idle_topic(delta_target: Target, noon: datetime, age: timedelta, due: bool) -> None:
    quiet = retention_of(delta_target, progress(noon - age))
    assert quiet.commit_is_due is due
    assert not quiet.may_miss_tombstones(NOTHING)
    assert quiet.advance(progress(noon), noon, read_range=NOTHING, is_last=True).committed_at == noon


def test_expires_the_ledger_at_most_hourly(delta_target: Target, noon: datetime) -> None:
    first = retention_of(delta_target, None, tombstone_ttl=30 * DAY_SECONDS)
    assert first.advance(progress(noon), noon, read_range=SOME, is_last=True).ledger_since == noon - 30 * DAY
    assert first.expire_before is None
    recent = retention_of(delta_target, progress(noon), tombstone_ttl=30 * DAY_SECONDS)
    fresh = progress(noon, noon - 30 * DAY - timedelta(minutes=59))
    assert recent.advance(fresh, noon, read_range=SOME, is_last=True).ledger_since == fresh.ledger_since
    assert recent.expire_before is None
    old = progress(noon, noon - 30 * DAY - timedelta(minutes=61))
    assert recent.advance(old, noon, read_range=SOME, is_last=False).ledger_since == old.ledger_since
    assert (
        recent.advance(old, noon, read_range=SOME, is_last=True).ledger_since == noon - 30 * DAY == recent.expire_before
    )


def test_stores_times_with_their_zone(noon: datetime) -> None:
    stored = progress(noon, noon - DAY).to_json()
    assert TableProgress.from_json(stored, "here").committed_at == noon.astimezone(UTC)
