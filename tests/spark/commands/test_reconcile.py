"""Comparison of a table with its topic while both change, and repair."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec import structs
from pyspark.sql import SparkSession
from tests.spark import kafka_log
from tests.spark.damaged_rows import damage
from tests.spark.kafka_log import Log, Schemas, framed, sequence
from tests.spark.live_topic import LiveTopic
from tests.spark.table_under_test import Target, job_for, set_clock

from outbox_events.errors import OutboxError, RefusedError
from outbox_spark.commands import reconcile as reconcile_module
from outbox_spark.commands import run_each
from outbox_spark.commands.exit_codes import Exit
from outbox_spark.commands.reconcile_report import ComparisonResult, ReconciledTable, as_json, as_table, exit_of
from outbox_spark.jobs.model import DeltaTarget, MaterializeJob, WriteCounts
from outbox_spark.runs import compare_topic as compare_module
from outbox_spark.runs.compare_source import SourceDifferences
from outbox_spark.runs.compare_topic import Comparison, compare_with_topic
from outbox_spark.runs.repair import count_unrepaired, repair_table
from outbox_spark.runs.row_differences import DifferenceKind

THING = {"type": "record", "name": "Thing", "fields": [{"name": "n", "type": "int"}]}
SCHEMAS = Schemas({1: THING}, newest=1)


def put(log: Log, key: str, commit: int, n: int | None = None, *, header: bool = True) -> None:
    value = commit if n is None else n
    log.append(key, framed(THING, 1, {"n": value}), sequence(commit) if header else None, {"n": value})


def delete(log: Log, key: str, commit: int) -> None:
    log.append(key, None, sequence(commit))


def compared(target: Target, live: LiveTopic) -> Comparison:
    with target.open() as table, ExitStack() as stack:
        return compare_with_topic(target.job, table, live.topic(), SCHEMAS, stack, max_examples=9)  # type: ignore[arg-type]


def repaired(target: Target, live: LiveTopic) -> tuple[dict[str, list[str]], WriteCounts, dict[DifferenceKind, int]]:
    """Repair the table. Return the differences, the counts of the write, and the number of unrepaired keys."""
    with target.open() as table, ExitStack() as stack:
        actual = compare_with_topic(target.job, table, live.topic(), SCHEMAS, stack, max_examples=9)  # type: ignore[arg-type]
        return keys(actual), repair_table(table, actual), count_unrepaired(table, actual, stack)


def keys(actual: Comparison) -> dict[str, list[str]]:
    return {kind.value: list(names) for kind, names in actual.examples.items() if actual.counts[kind]}


def filled(spark: SparkSession, target: Target) -> LiveTopic:
    """Return a topic whose table is up to date. The keys a to e exist, and `gone` is deleted."""
    log = Log("test.thing", partitions=1)
    for commit, key in enumerate(("a", "b", "c", "d", "gone"), start=1):
        put(log, key, commit)
    delete(log, "gone", 6)
    put(log, "e", 7)
    target.run(log, SCHEMAS)
    return LiveTopic(spark, log, SCHEMAS)


def test_repairs_every_kind_of_difference_without_moving_offsets(spark: SparkSession, target: Target) -> None:
    live = filled(spark, target)
    before = target.committed()
    assert before is not None
    damage(target, "a")
    damage(target, "b", _sequence=sequence(0), n=0)
    damage(target, "c", aggregate_id="gone", _offset=0)
    damage(target, "d", _sequence=sequence(99))
    actual, written, left = repaired(target, live)
    assert actual == {"missing": ["a", "c"], "stale": ["b"], "zombie": ["gone"], "ahead": ["d"]}
    assert set(left.values()) == {0}
    assert (written.upserts, written.deletes, written.tombstones) == (3, 1, 0)
    assert target.state("n") == {key: {"n": n} for key, n in (("a", 1), ("b", 2), ("c", 3), ("d", 4), ("e", 7))}
    after = target.committed()
    assert after is not None
    assert replace(after, run=before.run) == before
    assert after.run > before.run
    assert keys(compared(target, live)) == {"ahead": ["d"]}


def test_deletes_a_row_older_than_its_deletion_record(spark: SparkSession, target: Target) -> None:
    """The tombstone is compacted, and the ledger's entry is newer than the tombstone that the repair creates."""
    live = filled(spark, target)
    live.compact("gone")
    damage(target, "c", aggregate_id="gone", _offset=0)
    before = target.rows("__tombstones")
    actual, written, left = repaired(target, live)
    assert actual == {"missing": ["c"], "zombie": ["gone"]}
    assert set(left.values()) == {0}
    assert (written.upserts, written.deletes, written.tombstones) == (1, 1, 0)
    assert target.rows("__tombstones") == before
    assert keys(compared(target, live)) == {}


def test_deletes_a_zombie_key_without_records(spark: SparkSession, target: Target) -> None:
    """The tombstone was written and compacted between two runs."""
    live = filled(spark, target)
    delete(live.log, "a", 8)
    put(live.log, "f", 9)
    put(live.log, "g", 10)
    live.compact("a", "gone")
    actual, written, _ = repaired(target, live)
    assert actual == {"zombie": ["a"]}
    assert (written.upserts, written.deletes, written.tombstones) == (0, 1, 1)
    assert set(target.state()) == {"b", "c", "d", "e"}
    target.run(live.log, SCHEMAS)
    assert set(target.state()) == {"b", "c", "d", "e", "f", "g"}


def test_newer_records_apply_after_a_zombie_repair(spark: SparkSession, postgres_target: Target) -> None:
    """Without a sequence, the offset decides, so the synthetic tombstone's offset must be lower than later offsets."""
    log = Log("test.thing", partitions=1)
    for n, key in enumerate("abc"):
        put(log, key, 0, n, header=False)
    postgres_target.run(log, SCHEMAS)
    log.append("b", None, None)
    put(log, "d", 0, 3, header=False)
    live = LiveTopic(spark, log, SCHEMAS)
    live.compact("b")
    assert repaired(postgres_target, live)[1].deletes == 1
    assert set(postgres_target.state()) == {"a", "c"}
    put(log, "b", 0, 7, header=False)
    postgres_target.run(log, SCHEMAS)
    assert postgres_target.state("n")["b"] == {"n": 7}


def test_key_with_new_records_is_not_a_zombie(spark: SparkSession, postgres_target: Target) -> None:
    """The record is replaced after the scan began, and compacted before the scan reaches it."""
    live = filled(spark, postgres_target)
    moves = {"a": [1, 2, 3], "b": [1]}

    def move(_: object) -> None:
        pass_number = len(live.reads)
        for key, passes in moves.items():
            if pass_number in passes:
                put(live.log, key, 100 + pass_number)
                newest = live.log.records[-1]
                live.log.records = [r for r in live.log.records if r.key != key.encode() or r is newest]

    live.before_read = move
    actual = compared(postgres_target, live)
    assert keys(actual) == {}
    # The first pass reads `b`, the third reads `a`, which was moved twice more; no candidate remains.
    assert actual.pass_count == 3
    assert [read.start for read in live.reads[1:]] == [read.end for read in live.reads[:-1]]


@pytest.mark.long
def test_topic_that_changes_in_every_pass_leaves_keys_unproven(
    spark: SparkSession, postgres_target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare_module, "MAX_PASSES", 2)
    live = filled(spark, postgres_target)
    delete(live.log, "a", 8)
    put(live.log, "b", 9)
    live.compact("a")
    live.before_read = lambda _: put(live.log, "b", 10 + len(live.reads))
    actual = compared(postgres_target, live)
    assert keys(actual) == {"unproven": ["a"]}
    assert actual.scan_result.startswith("pass 2 still had ")
    live.min_compaction_lag = timedelta(hours=1)
    set_clock(monkeypatch, lambda: kafka_log.START)  # the records seem to be younger than the lag
    assert keys(compared(postgres_target, live)) == {"unproven": ["a"]}
    # Compaction does not remove records younger than the lag, so the first pass completes the scan.
    monkeypatch.setattr(kafka_log, "START", datetime.now(UTC) - timedelta(minutes=5))
    actual = compared(postgres_target, live)
    assert actual.examples[DifferenceKind.ZOMBIE] == ["a"]
    assert actual.pass_count == 1
    assert actual.scan_result == "all records of pass 1 are younger than min.compaction.lag.ms"


def test_a_pass_without_valid_timestamps_is_not_the_last(spark: SparkSession, postgres_target: Target) -> None:
    """A timestamp in microseconds instead of milliseconds is not valid."""
    live = filled(spark, postgres_target)
    live.compact("a")

    def append_once(_: object) -> None:
        live.before_read = lambda _: None
        live.log.append("b", framed(THING, 1, {"n": 9}), sequence(90), millis=1_700_000_000_000_000)

    live.before_read = append_once
    assert keys(compared(postgres_target, live)) == {"zombie": ["a"]}


def test_records_below_the_log_start_are_not_evidence(spark: SparkSession, postgres_target: Target) -> None:
    """DeleteRecords and retention also remove live records, so the whole table would look deleted."""
    live = filled(spark, postgres_target)
    live.start = 2
    live.log.records = [record for record in live.log.records if record.offset >= 2]
    assert repaired(postgres_target, live)[:2] == ({"unproven": ["a", "b"]}, WriteCounts())


def test_unread_records_are_not_differences(spark: SparkSession, postgres_target: Target) -> None:
    live = filled(spark, postgres_target)
    put(live.log, "new", 8)
    put(live.log, "a", 9)
    delete(live.log, "b", 10)
    assert keys(compared(postgres_target, live)) == {}
    assert len(live.reads) == 1


def test_reports_and_keeps_unreadable_records(spark: SparkSession, postgres_target: Target) -> None:
    live = filled(spark, postgres_target)
    live.log.append("a", b"poison", sequence(8))
    live.log.append("new", framed(THING, 77, {"n": 9}), sequence(9))  # an unknown schema
    live.log.append(None, b"no key", sequence(10))
    put(live.log, "e", 11)
    postgres_target.run(live.log, SCHEMAS)
    assert repaired(postgres_target, live)[:2] == ({"unreadable": ["a", "new"]}, WriteCounts())


def test_missing_row_may_be_deleted_after_partitions_were_added(spark: SparkSession, postgres_target: Target) -> None:
    """The old partition retains the live record. The tombstone was in a new partition and has been removed."""
    log = Log("test.thing", partitions=1)
    put(log, "a", 1)
    put(log, "b", 2)
    postgres_target.run(log, SCHEMAS)
    log.partitions = 2
    log.append("a", None, sequence(3), partition=1)
    log.append("c", framed(THING, 1, {"n": 4}), sequence(4), partition=1)
    live = LiveTopic(spark, log, SCHEMAS)
    with postgres_target.open() as table:
        committed = table.committed()
        read = replace(log.range_from(None), start={0: 2, 1: 0}, partition_epoch=1)
        postgres_target.apply(table, committed, read, log, SCHEMAS)
    live.compact("a")
    put(log, "a", 1)  # the record that is still in the old partition
    log.records[-1] = replace(log.records[-1], partition=0, offset=0)
    assert repaired(postgres_target, live)[:2] == ({"unsure": ["a"]}, WriteCounts())


def test_requires_a_table(spark: SparkSession, postgres_target: Target) -> None:
    live = LiveTopic(spark, Log("test.thing"), SCHEMAS)
    with pytest.raises(RefusedError, match="table does not exist"):
        compared(postgres_target, live)


JOB = structs.replace(job_for(DeltaTarget("/lake")), aggregate="thing", target_name="lake", table="thing")


def result(kind: ComparisonResult, **changes: object) -> ReconciledTable:
    counts = {DifferenceKind.MISSING: 2} if kind is ComparisonResult.DIFFERENT else {}
    examples = {DifferenceKind.MISSING: ["k1", "k2"]} if counts else {}
    return replace(ReconciledTable(JOB, kind, counts, examples), **changes)  # type: ignore[arg-type]


SAME, DIFFERENT, REPAIRED = (
    result(kind) for kind in (ComparisonResult.SAME, ComparisonResult.DIFFERENT, ComparisonResult.REPAIRED)
)
BROKEN = result(ComparisonResult.FAILED, error=OutboxError("no", "why"))


@pytest.mark.parametrize(
    ("results", "code"),
    [
        ([SAME, REPAIRED], Exit.DONE),
        ([SAME, DIFFERENT], Exit.FINDINGS),
        ([DIFFERENT, BROKEN], Exit.FAILED),
        ([BROKEN, replace(BROKEN, error=RefusedError("no"))], Exit.REFUSED),
    ],
)
def test_exit_codes(results: list[ReconciledTable], code: Exit) -> None:
    assert exit_of(results) is code


def test_reports_contain_counts_and_keys() -> None:
    source = SourceDifferences({"missing": 1, "different": 2}, {"missing": ["k9"]}, {"n": 2}, 3, ["remark"])
    different = replace(DIFFERENT, column_counts={"n": 2, "m": 1}, uncompared=["remark"])
    entries = json.loads(as_json([different, SAME.with_source(source), BROKEN]))["reconciliations"]
    assert [entry["result"] for entry in entries] == ["different", "different", "failed"]
    assert entries[0]["differences"]["missing"] == {"count": 2, "examples": ["k1", "k2"]}
    assert (entries[0]["columns"], entries[0]["not_compared"]) == ({"n": 2, "m": 1}, ["remark"])
    assert (entries[1]["source"]["columns"], entries[1]["source"]["not_compared"]) == ({"n": 2}, ["remark"])
    assert entries[1]["source"]["missing"] == {"count": 1, "examples": ["k9"]}
    assert (entries[2]["error"], entries[2]["hint"], entries[2]["transient"]) == ("no", "why", True)
    lines = as_table([different, SAME.with_source(source)]).splitlines()
    assert lines[0].split()[:6] == ["aggregate", "target", "table", "result", "missing", "stale"]
    assert lines[1].split()[:6] == ["thing", "lake", "thing", "different", "2", "0"]
    assert lines[3:] == [
        "lake.thing missing: k1, k2",
        "lake.thing different columns: n (2), m (1)",
        "lake.thing not compared: remark",
        "lake.thing against the source: 1 missing, 0 extra, 2 different, 0 unreadable",
        "lake.thing source missing: k9",
        "lake.thing source different columns: n (2)",
        "lake.thing source not compared: remark",
    ]


def test_a_key_cannot_control_the_terminal() -> None:
    key = "k\x1b[2J\x9b\nlake.thing missing: forged"
    hostile = replace(DIFFERENT, examples={DifferenceKind.MISSING: [key]})
    assert as_table([hostile]).splitlines()[2:] == [r"lake.thing missing: k\x1b[2J\x9b\nlake.thing missing: forged"]
    assert r"t\x1b[2J" in as_table([replace(DIFFERENT, job=structs.replace(JOB, table="t\x1b[2J"))])
    (entry,) = json.loads(as_json([hostile]))["reconciliations"]
    assert entry["differences"]["missing"]["examples"] == [key]


def test_the_command_reports_each_table(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = [job_for(DeltaTarget(str(tmp_path))), structs.replace(job_for(DeltaTarget(str(tmp_path))), aggregate="bad")]
    monkeypatch.setattr(reconcile_module, "selected_jobs", lambda _: jobs)
    monkeypatch.setattr(run_each, "start_session", lambda _, **__: spark)
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)

    def reconciled(
        _: SparkSession, job: MaterializeJob, *__: object, repair: bool, versions_only: bool, max_examples: int
    ) -> ReconciledTable:
        if job.aggregate == "bad":
            raise RefusedError("offsets do not fit", "look")
        assert (repair, versions_only, max_examples) == (True, False, 3)
        return REPAIRED

    monkeypatch.setattr(reconcile_module, "reconcile", reconciled)
    assert reconcile_module.main(["--repair", "--examples", "3", "--output", "json"]) == Exit.REFUSED
    printed = capsys.readouterr()
    results = [entry["result"] for entry in json.loads(printed.out)["reconciliations"]]
    assert results == ["repaired", "failed"]
    assert "error: test.thing -> target.thing: offsets do not fit\nhint: look\n" in printed.err
