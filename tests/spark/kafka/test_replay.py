"""A replay neither changes nor resurrects rows. A replay that could resurrect rows is rejected."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from msgspec import structs
from pyspark.sql import SparkSession
from tests.spark.damaged_rows import damage
from tests.spark.kafka_log import START, Log, Schemas, framed, sequence
from tests.spark.live_topic import LiveTopic
from tests.spark.table_under_test import Target, set_clock

from outbox_events.errors import ConfigurationError, RefusedError
from outbox_spark.jobs.model import MaterializeOptions, Ordering, Outcome, ReadRange, TableProgress
from outbox_spark.kafka.replay import parse_time, replay_range
from outbox_spark.runs import materialize_table

THING = {"type": "record", "name": "Thing", "fields": [{"name": "n", "type": "int"}]}
SCHEMAS = Schemas({1: THING}, newest=1)


def put(log: Log, key: str, commit: int) -> None:
    log.append(key, framed(THING, 1, {"n": commit}), sequence(commit), {"n": commit})


def replay(
    target: Target, live: LiveTopic, replay_from: str, ttl: timedelta = timedelta(days=30), max_records: int = 10_000
) -> Outcome:
    job = structs.replace(target.job, options=MaterializeOptions(tombstone_ttl=int(ttl.total_seconds())))
    return materialize_table.materialize(
        target.spark, job, lambda _: None, max_records, topic=live.topic(), replay_from=replay_from
    )


def test_accepts_a_replay_within_the_ledger_retention_only(
    spark: SparkSession, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tombstone was compacted, and an older record of the key was sent again after it."""
    clock = START + timedelta(minutes=1)
    set_clock(monkeypatch, lambda: clock)
    log = Log("test.thing", partitions=1)
    put(log, "a", 1)
    put(log, "b", 2)
    log.append("a", None, sequence(3))
    put(log, "c", 4)
    target.run(log, SCHEMAS)
    live = LiveTopic(spark, log, SCHEMAS)
    live.compact("a")
    log.records.insert(0, replace(log.records[0], key=b"a", sequence=sequence(1), offset=0))
    before, committed = target.rows(), target.committed()
    outcome = replay(target, live, "beginning", max_records=2)
    assert (outcome.records, outcome.upserts, outcome.deletes, outcome.batches) == (3, 0, 0, 2)
    assert outcome.offsets_from == {0: 0}
    assert target.rows() == before
    after = target.committed()
    assert committed is not None
    assert after is not None
    assert after.offsets == committed.offsets
    assert replay(target, live, (START + timedelta(seconds=3)).isoformat()).records == 1
    # Records 0 and 1 are now older than the retention of the ledger.
    clock = START + timedelta(hours=2)
    log.ends[0] = int(timedelta(hours=2).total_seconds())
    put(log, "d", 5)
    replay(target, live, clock.isoformat(), ttl=timedelta(hours=2) - timedelta(seconds=2))
    assert target.rows("__tombstones") != []
    with pytest.raises(RefusedError, match=r"beginning reads partition 0 from offset 0") as refused:
        replay(target, live, "beginning")
    assert "outbox-rebuild" in refused.value.hint
    assert replay(target, live, (START + timedelta(seconds=2)).isoformat()).records == 2


def test_replays_from_the_beginning_after_compaction_of_the_first_records(spark: SparkSession, target: Target) -> None:
    """The log starts at offset 0, but its first record has a higher offset."""
    log = Log("test.thing", partitions=1)
    put(log, "a", 1)
    put(log, "b", 2)
    put(log, "a", 3)
    live = LiveTopic(spark, log, SCHEMAS)
    replay(target, live, "beginning")
    log.records = log.records[1:]
    outcome = replay(target, live, "beginning", ttl=timedelta(seconds=1))
    assert (outcome.offsets_from, outcome.records) == ({0: 1}, 2)


def test_counts_only_what_a_replay_changes(spark: SparkSession, target: Target) -> None:
    log = Log("test.thing", partitions=1)
    put(log, "a", 1)
    put(log, "b", 2)
    log.append("c", b"unreadable", sequence(3))
    live = LiveTopic(spark, log, SCHEMAS)
    assert replay(target, live, "beginning").quarantined == 1
    damage(target, "a")
    log.append("b", None, sequence(4))
    outcome = replay(target, live, "beginning")
    assert (outcome.records, outcome.upserts, outcome.deletes, outcome.quarantined) == (4, 1, 1, 0)
    assert set(target.state()) == {"a"}


# The following tests do not use Spark.

READ = ReadRange("t", "id", 0, {0: 7, 1: 4}, {0: 9, 1: 4})
COMMITTED = TableProgress("t", "id", 0, Ordering.SEQUENCE, {0: 7, 1: 4}, 3, START, START)


def test_replay_starts_earlier_only() -> None:
    assert replay_range(READ, COMMITTED, {0: 3, 1: 9}, None, "x").start == {0: 3, 1: 4}
    assert replay_range(READ, None, {0: 8, 1: 9}, None, "x") == READ


def test_does_not_replay_records_whose_deletions_expired() -> None:
    with pytest.raises(
        RefusedError,
        match=r"partition 0 from offset 3, .*2026-01-01T00:00:00Z",
    ):
        replay_range(READ, COMMITTED, {0: 3, 1: 4}, {0: 5, 1: 0}, "beginning")
    # Either all replayed records are within the retention, or no records are replayed.
    assert replay_range(READ, COMMITTED, {0: 5, 1: 0}, {0: 5, 1: 0}, "x").start == {0: 5, 1: 0}
    assert replay_range(READ, COMMITTED, {0: 8, 1: 9}, {0: 9, 1: 9}, "x") == READ


def test_times_default_to_utc() -> None:
    assert (
        parse_time("2026-01-01T00:00:00")
        == parse_time("2026-01-01T00:00:00Z")
        == parse_time("2026-01-01T02:00:00+02:00")
        == START
    )
    with pytest.raises(ConfigurationError, match="--replay-from yesterday"):
        parse_time("yesterday")
