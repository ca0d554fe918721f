"""Lake formats: stale rows, soft deletes and history."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import structs
from tests.spark.kafka_log import START, Log, Record, sequence
from tests.spark.table_under_test import Target
from tests.spark.thing_records import SCHEMAS, delete, poison, put
from tests.variations import variations

from outbox_spark.errors import SchemaError
from outbox_spark.jobs.model import MaterializeOptions, Mode


@pytest.fixture(params=variations(["iceberg", "delta"]))
def lake(request: pytest.FixtureRequest) -> Target:
    lake_target: Target = request.getfixturevalue(f"{request.param}_target")
    return lake_target


def in_mode(target: Target, mode: Mode) -> Target:
    return replace(target, job=structs.replace(target.job, options=MaterializeOptions(mode=mode)))


def values_and_flags(target: Target) -> dict[str, tuple[int, bool]]:
    return {row["aggregate_id"]: (row["n"], row["_stale"]) for row in target.rows()}


def test_row_is_stale_while_a_newer_record_is_quarantined(lake: Target) -> None:
    log = Log("test.thing")
    for key, commit in (("a", 1), ("b", 2), ("d", 3), ("e", 5)):
        put(log, key, commit)
    poison(log, "c", 4)
    poison(log, "e", 6)
    lake.run(log, SCHEMAS)
    assert values_and_flags(lake) == {"a": (1, False), "b": (2, False), "d": (3, False), "e": (5, True)}
    poison(log, "a", 10)
    poison(log, "d", 11)
    delete(log, "d", 12)  # newer than the unreadable record
    put(log, "c", 3)  # older than the unreadable record, so the new row is stale
    second = lake.run(log, SCHEMAS)
    assert values_and_flags(lake) == {"a": (1, True), "b": (2, False), "c": (3, True), "e": (5, True)}
    assert (second.upserts, second.deletes, second.quarantined) == (1, 1, 1)
    put(log, "a", 9)  # newer than the row, older than the unreadable record
    put(log, "c", 20)
    put(log, "e", 7)
    put(log, "b", 1)
    third = lake.run(log, SCHEMAS)
    assert values_and_flags(lake) == {"a": (9, True), "b": (2, False), "c": (20, False), "e": (7, False)}
    assert (third.upserts, third.deletes) == (3, 0)


def test_soft_deletes_keep_the_last_row(lake: Target) -> None:
    soft = in_mode(lake, Mode.SOFT_DELETE)
    log = Log("test.thing")
    old = [put(log, "a", 1), put(log, "b", 2)]
    soft.run(log, SCHEMAS)
    assert {row["_deleted_at"] for row in soft.rows()} == {None}
    deletion = delete(log, "a", 3)
    delete(log, "never", 4)
    second = soft.run(log, SCHEMAS)
    states = soft.state("n", "_deleted_at", "_sequence")
    assert set(states) == {"a", "b"}
    assert states["a"]["_deleted_at"].astimezone(UTC) == START + timedelta(seconds=deletion.offset)
    assert (states["a"]["n"], states["a"]["_sequence"]) == (1, sequence(3))
    assert (second.upserts, second.deletes, second.tombstones) == (0, 1, 2)
    for record in old:  # a replay does not restore the row
        log.append(record.key, record.value, record.sequence, partition=record.partition)
    put(log, "never", 3)
    put(log, "a", 7)  # a newer record restores it
    delete(log, "b", 8)
    third = soft.run(log, SCHEMAS)
    states = soft.state("n", "_deleted_at")
    assert states["a"] == {"n": 7, "_deleted_at": None}
    assert set(states) == {"a", "b"}
    assert states["b"]["_deleted_at"] is not None
    assert (third.upserts, third.deletes) == (1, 1)
    delete(log, "a", 9)
    with pytest.raises(SchemaError, match=r"mode soft-delete, .* mode hard-delete"):
        lake.run(log, SCHEMAS)


def history(target: Target) -> set[tuple[object, ...]]:
    names = ("aggregate_id", "_sequence", "n", "_valid_from", "_valid_to")
    rows = target.rows()
    versions = {tuple(_utc(row[name]) for name in names) for row in rows}
    assert len(versions) == len(rows)
    return versions


def _utc(value: object) -> object:
    return value.astimezone(UTC) if isinstance(value, datetime) else value


class Versions:
    """The oracle, which has the first copy of each version of a key, or the last if copies are in the same run."""

    def __init__(self) -> None:
        self.known: dict[tuple[bytes, str], Record] = {}

    def read(self, records: list[Record]) -> None:
        new: dict[tuple[bytes, str], Record] = {}
        for record in sorted(records, key=lambda r: r.offset):
            assert record.key is not None
            assert record.sequence is not None
            new[record.key, record.sequence] = record
        self.known = {**new, **self.known}

    def intervals(self) -> set[tuple[object, ...]]:
        intervals = set()
        for key in {key for key, _ in self.known}:
            versions = [self.known[version] for version in sorted(self.known) if version[0] == key]
            ends: list[datetime | None] = [*(time_of(version) for version in versions[1:]), None]
            for version, end in zip(versions, ends, strict=True):
                if isinstance(version.state, Mapping):
                    intervals.add((key.decode(), version.sequence, version.state["n"], time_of(version), end))
        return intervals


def time_of(record: Record) -> datetime:
    return START + timedelta(seconds=record.offset)


def random_log(seed: int, count: int) -> Log:
    """Return changes and deletions, some of which are late or duplicated."""
    rng = random.Random(seed)  # noqa: S311
    log = Log("test.thing")
    commits = list(range(1, count + 1))
    for place in rng.sample(range(count - 9), k=count // 8):  # late by up to nine
        commits.insert(place + 9, commits.pop(place))
    for commit in commits:
        key = f"k{rng.randrange(6)}"
        if rng.random() < 0.25:
            delete(log, key, commit)
        else:
            put(log, key, commit)
        if rng.random() < 0.15:
            copy = rng.choice(log.records)
            log.append(copy.key, copy.value, copy.sequence, copy.state, copy.partition)
    return log


@pytest.mark.long
def test_history_equals_the_oracle_after_every_run(delta_target: Target) -> None:
    target, log, oracle = in_mode(delta_target, Mode.HISTORY), random_log(5, 60), Versions()
    end = log.end()
    for share in (2, 1):
        cut = {partition: count // share for partition, count in end.items()}
        read = log.range_from(target.committed(), cut)
        outcome = target.run(log, SCHEMAS, cut)
        before = oracle.intervals()
        oracle.read(log.within(read))
        assert history(target) == oracle.intervals()
        versions = {row[:2] for row in oracle.intervals()} - {row[:2] for row in before}
        assert outcome.upserts == len(versions)
    with target.open() as table:  # the intervals of a key depend on its deletions
        assert table.expire_ledger(datetime.now(UTC)) == 0
    again = list(log.records)
    for record in again:
        log.append(record.key, record.value, record.sequence, record.state, record.partition)
    outcome = target.run(log, SCHEMAS)
    assert history(target) == oracle.intervals()
    assert (outcome.upserts, outcome.deletes, outcome.tombstones) == (0, 0, 0)


@pytest.mark.long  # test_row_is_stale_while_a_newer_record_is_quarantined tests the same in another mode
def test_history_flags_the_current_version_as_stale(delta_target: Target) -> None:
    target, log = in_mode(delta_target, Mode.HISTORY), Log("test.thing")
    put(log, "a", 1)
    put(log, "a", 2)
    put(log, "b", 1)
    poison(log, "a", 5)
    first = target.run(log, SCHEMAS)
    flags: dict[tuple[Any, Any], bool] = {("a", 1): False, ("a", 2): True, ("b", 1): False}
    assert {(row["aggregate_id"], row["n"]): row["_stale"] for row in target.rows()} == flags
    poison(log, "b", 3)
    put(log, "a", 4)  # between the row and the unreadable record
    second = target.run(log, SCHEMAS)
    flags = {("a", 1): False, ("a", 2): False, ("a", 4): True, ("b", 1): True}
    assert {(row["aggregate_id"], row["n"]): row["_stale"] for row in target.rows()} == flags
    put(log, "a", 6)
    delete(log, "b", 6)
    third = target.run(log, SCHEMAS)
    flags = {("a", 1): False, ("a", 2): False, ("a", 4): False, ("a", 6): False, ("b", 1): False}
    assert {(row["aggregate_id"], row["n"]): row["_stale"] for row in target.rows()} == flags
    assert [outcome.upserts for outcome in (first, second, third)] == [3, 1, 1]
    assert [outcome.deletes for outcome in (first, second, third)] == [0, 0, 1]
