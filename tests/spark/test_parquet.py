"""Parquet snapshots: the pointer is the commit, readers see whole snapshots, and old ones go when nobody reads them."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from kafka_log import START, Log, Schemas, framed, sequence
from pyspark.sql import SparkSession
from tables import Target
from test_values import SCHEMA, VALUES, one_row

from outbox_spark.errors import ConfigurationError, OverlapError, RefusedError
from outbox_spark.model import MaterializeJob, Mode, ParquetTarget
from outbox_spark.parquet_reader import newest_pointer, read_current
from outbox_spark.sinks import ParquetTable, open_table
from outbox_spark.sinks.parquet_files import Files

# A snapshot is a copy of a table: seconds each. What holds for every target is in test_materialize.py.
pytestmark = pytest.mark.long

THING = {"type": "record", "name": "Thing", "fields": [{"name": "n", "type": "int"}]}
SCHEMAS = Schemas({1: THING}, newest=1)
DAY = 86_400


class CrashError(Exception):
    """Stands for the death of the driver."""


def put(log: Log, key: str, commit: int) -> None:
    log.append(key, framed(THING, 1, {"n": commit}), sequence(commit))


def gone(log: Log, key: str, commit: int) -> None:
    log.append(key, None, sequence(commit))


def poison(log: Log, key: str, commit: int) -> None:
    log.append(key, b"poison", sequence(commit))


def folder(target: Target) -> Path:
    assert isinstance(target.job.target, ParquetTarget)
    return Path(target.job.target.path, target.job.table)


def pointer(target: Target) -> dict[str, Any]:
    found = newest_pointer(target.spark, str(folder(target)))
    assert found is not None
    return found


def table(target: Target, **changes: object) -> ParquetTable:
    found = open_table(target.spark, replace(target.job, **changes))  # type: ignore[arg-type]
    assert isinstance(found, ParquetTable)
    return found


def stale(target: Target) -> dict[str, tuple[int, bool]]:
    return {row["aggregate_id"]: (row["n"], row["_stale"]) for row in target.rows()}


def age(path: Path, seconds: float) -> None:
    """Make a file, or a folder with all that is in it, so much older."""
    for file in [path, *path.rglob("*")]:
        then = file.stat().st_mtime - seconds
        os.utime(file, (then, then))


def test_a_crash_before_the_pointer_leaves_the_table_as_it_was(
    parquet_target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log("test.thing")
    put(log, "a", 1)
    with monkeypatch.context() as patch:
        patch.setattr(Files, "create_once", crash)
        with pytest.raises(CrashError):
            parquet_target.run(log, SCHEMAS)
    assert parquet_target.committed() is None
    parquet_target.run(log, SCHEMAS)
    before = (parquet_target.rows(), parquet_target.committed())
    gone(log, "a", 2)
    put(log, "b", 3)
    poison(log, "c", 4)
    with monkeypatch.context() as patch:
        patch.setattr(Files, "create_once", crash)
        with pytest.raises(CrashError):
            parquet_target.run(log, SCHEMAS)
    assert (parquet_target.rows(), parquet_target.committed()) == before
    assert parquet_target.rows("__tombstones") == []
    parquet_target.run(log, SCHEMAS)
    assert parquet_target.state("n") == {"b": {"n": 3}}
    assert len(parquet_target.rows("__quarantine")) == len(parquet_target.rows("__tombstones")) == 1


def test_of_two_runs_that_meet_one_is_refused(parquet_target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both look, both write their files; the second pointer of a number is not made."""
    log = Log("test.thing")
    put(log, "a", 1)
    create = Files.create_once

    def overtaken(files: Files, path: str, content: dict[str, Any]) -> bool:
        monkeypatch.undo()
        parquet_target.run(log, SCHEMAS, first)
        return create(files, path, content)

    first = log.end()
    put(log, "b", 2)
    monkeypatch.setattr(Files, "create_once", overtaken)
    with pytest.raises(OverlapError, match=r"another run has committed to .*thing meanwhile"):
        parquet_target.run(log, SCHEMAS)
    assert parquet_target.state("n") == {"a": {"n": 1}}
    assert parquet_target.run(log, SCHEMAS).offsets_from == first


def test_a_run_that_is_far_behind_does_not_take_a_number_that_was_cleaned_up(
    parquet_target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log("test.thing")
    parquet_target.run(log, SCHEMAS)
    with parquet_target.open() as slow:
        committed = slow.committed()
        for commit in (1, 2):
            put(log, "a", commit)
            parquet_target.run(log, SCHEMAS)
        (folder(parquet_target) / "_current/000000000002").unlink()
        check, calls = ParquetTable._check_not_overtaken, []

        def check_after(table: ParquetTable, number: int) -> None:
            calls.append(number)
            if len(calls) > 1:  # the first look was before the others ran
                check(table, number)

        monkeypatch.setattr(ParquetTable, "_check_not_overtaken", check_after)
        with pytest.raises(OverlapError):
            parquet_target.apply(slow, committed, log.range_from(committed), log, SCHEMAS)
    assert calls == [2, 3]
    assert pointer(parquet_target)["number"] == 3


@pytest.mark.parametrize("way", ["link", "create"])
def test_however_many_make_a_pointer_one_succeeds(spark: SparkSession, tmp_path: Path, way: str) -> None:
    files = Files(spark, str(tmp_path / "table"))

    def attempt(number: int) -> bool:
        if way == "link":
            return files.create_once("_current/000000000001", {"by": number})
        return files._create(files._at("_current/000000000001"), {"by": number}, conditional=False)

    # A local file system creates without a condition; what is shown of that way is what it says to the second.
    with ThreadPoolExecutor(8 if way == "link" else 1) as threads:
        won = [number for number, done in enumerate(threads.map(attempt, range(8))) if done]
    assert len(won) == 1
    assert files.read("_current/000000000001") == {"by": won[0]}
    assert files.entries("_pending") == []


def test_a_file_system_that_renames_gets_the_pointer_by_rename(spark: SparkSession, tmp_path: Path) -> None:
    files = Files(spark, str(tmp_path / "table"))
    assert files._create_aside(files._at("_current/000000000001"), {"a": 1}, link=False)
    assert files.read("_current/000000000001") == {"a": 1}


def test_a_store_without_conditional_writes_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    files = Files(spark, str(tmp_path))
    files._scheme = "s3a"
    with pytest.raises(ConfigurationError, match="cannot write a file on condition") as caught:
        files.create_once("_current/000000000001", {})
    assert "hadoop-aws" in caught.value.hint


def test_a_reader_in_flight_keeps_its_snapshot(parquet_target: Target, spark: SparkSession) -> None:
    path = str(folder(parquet_target))
    with pytest.raises(FileNotFoundError):
        read_current(spark, path)
    log = Log("test.thing")
    put(log, "a", 1)
    parquet_target.run(log, SCHEMAS)
    reader = read_current(spark, path)
    put(log, "a", 2)
    parquet_target.run(log, SCHEMAS)
    with parquet_target.open() as open_:
        open_.maintain()
    assert [row["n"] for row in reader.collect()] == [1]
    assert [row["n"] for row in read_current(spark, path).collect()] == [2]
    # The two lines of the documentation.
    newest = spark.read.json(f"{path}/_current").orderBy("number", ascending=False).first()
    assert newest is not None
    assert [row["n"] for row in spark.read.parquet(f"{path}/{newest['rows']}").collect()] == [2]


def test_what_has_not_changed_is_not_written_again(parquet_target: Target) -> None:
    log = Log("test.thing")
    put(log, "a", 1)
    put(log, "a", 2)
    parquet_target.run(log, SCHEMAS)
    first = pointer(parquet_target)
    put(log, "a", 1)
    outcome = parquet_target.run(log, SCHEMAS)
    second = pointer(parquet_target)
    assert (outcome.upserts, outcome.records) == (0, 1)
    assert (second["rows"], second["tombstones"]) == (first["rows"], first["tombstones"])
    assert second["progress"]["offsets"] == {str(p): end for p, end in log.end().items()}
    gone(log, "never-seen", 3)
    outcome = parquet_target.run(log, SCHEMAS)
    third = pointer(parquet_target)
    assert (outcome.deletes, outcome.tombstones) == (0, 1)
    assert third["rows"] == first["rows"]
    assert third["tombstones"] != first["tombstones"]
    assert len(list(folder(parquet_target).glob("snapshot-*"))) == 2


def test_snapshots_end_a_day_after_their_successor(parquet_target: Target) -> None:
    log = Log("test.thing")
    for commit in range(1, 5):
        put(log, "a", commit)
        parquet_target.run(log, SCHEMAS)
    root = folder(parquet_target)
    left = root / "snapshot-000000000005-crashed"  # by a run that died a minute ago, and by one that died long ago
    older = root / "snapshot-000000000005-older"
    for path in (left, older):
        (path / "rows").mkdir(parents=True)
        (path / "rows" / "part.parquet").touch()
    (root / "_pending").mkdir(exist_ok=True)
    (root / "_pending" / "left").touch()
    with parquet_target.open() as open_:
        assert open_.maintain() == "0 snapshots ended, 0 folders removed; 4 snapshots kept"
    # 1 was superseded long ago, 2 a minute ago: then came 3 and 4, the last two.
    for name in ("000000000001", "000000000002"):
        age(root / "_current" / name, 2 * DAY)
    for path in root.glob("snapshot-*"):
        age(path, 0 if path == left else 2 * DAY)
    age(root / "_pending", 2 * DAY)
    with parquet_target.open() as open_:
        assert open_.maintain() == "1 snapshots ended, 2 folders removed; 3 snapshots kept"
    assert sorted(path.name for path in (root / "_current").glob("0*")) == [f"{n:012}" for n in (2, 3, 4)]
    assert left.exists()
    assert not older.exists()
    assert list((root / "_pending").iterdir()) == []
    age(root / "_current", 2 * DAY)
    with parquet_target.open() as open_:
        assert open_.maintain() == "1 snapshots ended, 1 folders removed; 2 snapshots kept"
    assert parquet_target.state("n") == {"a": {"n": 4}}


def test_a_row_is_stale_while_a_newer_record_of_its_key_is_in_quarantine(parquet_target: Target) -> None:
    log = Log("test.thing")
    put(log, "a", 1)
    put(log, "b", 2)
    poison(log, "a", 3)
    poison(log, "c", 6)
    parquet_target.run(log, SCHEMAS)
    assert stale(parquet_target) == {"a": (1, True), "b": (2, False)}
    put(log, "a", 4)  # heals
    poison(log, "b", 5)
    put(log, "c", 5)  # good, but older than what a run before has set apart
    parquet_target.run(log, SCHEMAS)
    assert stale(parquet_target) == {"a": (4, False), "b": (2, True), "c": (5, True)}
    gone(log, "b", 6)
    put(log, "b", 7)
    poison(log, "a", 2)  # older than the row
    parquet_target.run(log, SCHEMAS)
    assert stale(parquet_target) == {"a": (4, False), "b": (7, False), "c": (5, True)}


def test_soft_deletes_keep_the_row(parquet_target: Target, spark: SparkSession) -> None:
    soft = replace(parquet_target, job=with_mode(parquet_target.job, Mode.SOFT_DELETE))
    log = Log("test.thing", partitions=1)
    put(log, "a", 1)
    put(log, "b", 2)
    gone(log, "new", 3)
    soft.run(log, SCHEMAS)
    gone(log, "a", 4)
    outcome = soft.run(log, SCHEMAS)
    assert (outcome.deletes, outcome.upserts) == (1, 0)
    deleted_at = {row["aggregate_id"]: row["_deleted_at"] for row in soft.rows()}
    assert deleted_at["b"] is None
    assert deleted_at["a"].astimezone(UTC) == START + timedelta(seconds=3)
    assert soft.state("n", "_sequence", "_offset")["a"] == {"n": 1, "_sequence": sequence(4), "_offset": 3}
    with soft.open() as open_:
        open_.committed()
        assert [row["aggregate_id"] for row in open_.versions().collect()] == ["b"]
    put(log, "a", 1)  # a stale replay
    put(log, "b", 5)
    soft.run(log, SCHEMAS)
    assert soft.state("n")["a"] == {"n": 1}
    assert read_current(spark, str(folder(soft))).where("_deleted_at is null").count() == 1
    put(log, "a", 6)
    gone(log, "b", 7)
    soft.run(log, SCHEMAS)
    assert [(row["n"], row["_deleted_at"]) for row in soft.rows() if row["aggregate_id"] == "a"] == [(6, None)]
    # Without soft deletes, what they kept goes.
    parquet_target.run(log, SCHEMAS)
    assert parquet_target.state("n") == {"a": {"n": 6}}
    assert "_deleted_at" not in parquet_target.rows()[0]


def test_no_history_in_snapshots(parquet_target: Target) -> None:
    with pytest.raises(ConfigurationError, match="table thing: Parquet snapshots hold no history"):
        open_table(parquet_target.spark, with_mode(parquet_target.job, Mode.HISTORY))


def test_a_wider_type_widens_the_column(parquet_target: Target) -> None:
    wider = {**THING, "fields": [{"name": "n", "type": "long"}]}
    log = Log("test.thing")
    put(log, "a", 1)
    parquet_target.run(log, SCHEMAS)
    log.append("b", framed(wider, 2, {"n": 2**40}), sequence(2))
    parquet_target.run(log, Schemas({1: THING, 2: wider}, newest=2))
    assert parquet_target.state("n") == {"a": {"n": 1}, "b": {"n": 2**40}}


def test_every_type_is_exact_in_parquet(parquet_target: Target) -> None:
    row = one_row(parquet_target, SCHEMA, VALUES)
    row = {n: v.astimezone(UTC) if isinstance(v, datetime) and n.startswith("at") else v for n, v in row.items()}
    expected = {**VALUES, "clock": "23:59:59.999999", "short_clock": "00:00:01.005000"}
    assert {name: row[name] for name in VALUES} == expected


def test_deletions_are_forgotten_by_the_time_of_their_record(parquet_target: Target) -> None:
    log = Log("test.thing", partitions=1)
    gone(log, "a", 1)
    gone(log, "b", 2)
    parquet_target.run(log, SCHEMAS)
    with parquet_target.open() as open_:
        committed = open_.committed()
        assert open_.forget_deletions(START) == 0
        assert open_.forget_deletions(START + timedelta(seconds=1)) == 1
        assert open_.committed() == committed
        # The same run goes on.
        put(log, "a", 0)
        put(log, "b", 1)
        parquet_target.apply(open_, committed, log.range_from(committed), log, SCHEMAS)
    assert [row["aggregate_id"] for row in parquet_target.rows("__tombstones")] == ["b"]
    assert parquet_target.state("n") == {"a": {"n": 0}}


def test_a_shadow_takes_the_place_of_the_table(parquet_target: Target, spark: SparkSession) -> None:
    shadow = replace(parquet_target, job=replace(parquet_target.job, table="thing__shadow"))
    log = Log("test.thing")
    put(log, "a", 1)
    gone(log, "b", 2)
    shadow.run(log, SCHEMAS)
    replace_table(parquet_target, shadow)
    assert parquet_target.state("n") == {"a": {"n": 1}}
    reader = read_current(spark, str(folder(parquet_target)))
    put(log, "b", 1)
    put(log, "c", 3)
    shadow.run(log, SCHEMAS)
    put(log, "d", 4)
    shadow.run(log, SCHEMAS)
    committed = shadow.committed()
    replace_table(parquet_target, shadow)
    assert parquet_target.committed() == committed
    assert parquet_target.state("n") == {"a": {"n": 1}, "c": {"n": 3}, "d": {"n": 4}}
    assert [row["n"] for row in reader.collect()] == [1]
    assert shadow.committed() is None
    assert not folder(shadow).exists()
    with parquet_target.open() as open_:
        open_.committed()
        assert open_.versions().count() == 3
        open_.drop()
    assert parquet_target.committed() is None
    with parquet_target.open() as open_, pytest.raises(RefusedError, match="holds no snapshot"):
        open_.versions()


def replace_table(target: Target, shadow: Target) -> None:
    with target.open() as current, shadow.open() as new:
        current.replace_by(new)


def with_mode(job: MaterializeJob, mode: Mode) -> MaterializeJob:
    return replace(job, options=replace(job.options, mode=mode))


def crash(*_: object) -> None:
    raise CrashError
