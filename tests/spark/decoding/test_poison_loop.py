"""If a key's newest record is unreadable, the row has the newest readable record, for any batch boundaries."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession
from tests.spark.kafka_log import POISON, Log, Record, Schemas, framed, sequence
from tests.spark.live_topic import LiveTopic
from tests.spark.memory_table import JOB, MemoryTable, run

from outbox_events.errors import RefusedError
from outbox_spark.errors import SchemaError
from outbox_spark.jobs.model import MaterializeOptions, Mode, ReadRange
from outbox_spark.runs.apply_batch import apply
from outbox_spark.session.persisted import DecodedCounts

THING = {"type": "record", "name": "Thing", "fields": [{"name": "n", "type": "int"}]}
SCHEMAS = Schemas({1: THING}, newest=1)
BAD = b"\x00\x00\x00\x00\x01"  # a frame without a value


def log_of(keys: dict[str, list[int | str | None]], *, headers: bool = True) -> Log:
    """Return a log with one partition and alternating keys. Numbers are values, None is a tombstone, text is poison."""
    log = Log("test.thing", partitions=1)
    for turn in range(max(len(states) for states in keys.values())):
        for key, states in keys.items():
            if turn < len(states):
                add(log, key, states[turn], headers=headers)
    return log


def add(log: Log, key: str, state: int | str | None, *, headers: bool = True) -> None:
    position = sequence(len(log.records) + 1) if headers else None
    value = None if state is None else BAD if isinstance(state, str) else framed(THING, 1, {"n": state})
    log.append(key, value, position, POISON if isinstance(state, str) else state)


def expected(log: Log) -> tuple[dict[str, int], set[str]]:
    """Return the expected rows by key, and the keys of stale rows."""
    valid: dict[str, Record] = {}
    last: dict[str, Record] = {}
    for record in sorted(log.records, key=lambda record: (record.sequence or "", record.offset)):
        assert record.key is not None
        key = record.key.decode()
        last[key] = record
        if record.state is not POISON:
            valid[key] = record
    rows = {key: record.state for key, record in valid.items() if isinstance(record.state, int)}
    return rows, {key for key in rows if last[key].state is POISON}


@pytest.mark.parametrize("headers", [True, False], ids=["sequence", "offset"])
def test_keeps_the_newest_readable_record_for_poison_anywhere(spark: SparkSession, headers: bool) -> None:
    log = log_of(
        {
            "last": [1, 2, "bad"],
            "row": [1, "bad", "bad", "bad"],
            "between": [1, "bad", 2, "bad"],
            "repaired": [1, "bad", 2],
            "gone": [1, None, "bad"],
            "back": [1, None, "bad", 3],
            "deleted-after": [1, "bad", None],
            "never": ["bad", "bad"],
            "fine": [1, 2, 3],
        },
        headers=headers,
    )
    table = MemoryTable()
    applied = run(spark, table, log, SCHEMAS)
    rows, stale = expected(log)
    assert rows == {"last": 2, "row": 1, "between": 2, "repaired": 2, "back": 3, "fine": 3}
    assert stale == {"last", "row", "between"}
    assert (table.state("n"), table.stale()) == (rows, stale)
    assert "gone" in table.deleted
    # The quarantine has all unreadable records that are newer than the row; superseded records are not decoded.
    actual = sorted(row["aggregate_id"] for row in table.quarantine)
    assert actual == ["between", "gone", "last", "never", "never", "row", "row", "row"]
    assert applied.written.quarantined == 8


@pytest.mark.long  # the state machine in runs/ also has unreadable records and random batches
@pytest.mark.parametrize("seed", range(3))
def test_result_does_not_depend_on_batch_boundaries(spark: SparkSession, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - repeatable
    log = Log("test.thing", partitions=2)
    for _ in range(40):
        state = chance.choice([chance.randrange(100), chance.randrange(100), "bad", "bad", None])
        add(log, chance.choice("abcdef"), state, headers=seed != 2)
    end = log.end()
    cuts = sorted(chance.random() for _ in range(2))
    tables = [MemoryTable(), MemoryTable()]
    for share in (*cuts, 1.0):
        run(spark, tables[0], log, SCHEMAS, end={p: int(offset * share) for p, offset in end.items()})
    run(spark, tables[1], log, SCHEMAS)
    rows, stale = expected(log)
    for table in tables:
        assert (table.state("n"), table.stale()) == (rows, stale)


def test_replay_of_the_same_range_changes_nothing(spark: SparkSession) -> None:
    log = log_of({"a": [1, "bad", 2, "bad"], "b": [1, None, "bad"]})
    table = MemoryTable()
    run(spark, table, log, SCHEMAS)
    first = (table.state("n"), table.stale(), dict(table.deleted))
    table.progress = None
    run(spark, table, log, SCHEMAS)
    assert (table.state("n"), table.stale(), dict(table.deleted)) == first


def test_keeps_records_compacted_before_the_second_read(spark: SparkSession) -> None:
    log = log_of({"a": [1, "bad", 2, "bad"], "b": [5, "bad"], "c": [7]})
    read_range = log.range_from(None)
    # Newer records were appended after the range, and compaction removed the last three records of the range.
    less = replace(log, records=log.records[:4])
    live, table = LiveTopic(spark, log, SCHEMAS), MemoryTable()

    def compact(_: ReadRange) -> None:
        live.log = log if len(live.reads) == 1 else less

    live.before_read = compact
    apply(JOB, table, None, read_range, live.topic(), SCHEMAS)  # type: ignore[arg-type]
    assert live.reads == [read_range, read_range]
    # The poison of the first read is quarantined and flags the remaining row as stale. Newer records clear the flag.
    assert sorted(row["_offset"] for row in table.quarantine) == [3, 4, 6]
    assert (table.state("n"), table.stale()) == ({"a": 1, "b": 5, "c": 7}, {"a", "b"})


def test_stops_without_writes_above_the_quarantine_limit(spark: SparkSession) -> None:
    log = log_of({"a": [1, "bad", "bad", "bad"], "b": [1]})
    table = MemoryTable()
    with pytest.raises(RefusedError, match=r"3 records .* max_quarantined is 2: undecodable \(3\)") as error:
        run(spark, table, log, SCHEMAS, MaterializeOptions(max_quarantined=2))
    assert "max_quarantined" in error.value.hint
    assert (table.progress, table.rows, table.quarantine) == (None, {}, [])
    run(spark, table, log, SCHEMAS, MaterializeOptions(max_quarantined=3))
    assert table.state("n") == {"a": 1, "b": 1}


def test_stops_for_a_required_record_of_an_incompatible_version(spark: SparkSession) -> None:
    """Only the second read decodes the record's schema id, before anything has been written."""
    older = {"type": "record", "name": "Thing", "fields": [{"name": "n", "type": "string"}]}
    log = Log("test.thing", partitions=1)
    log.append("k", framed(older, 2, {"n": "x"}), sequence(1))
    log.append("k", BAD, sequence(2))
    table = MemoryTable()
    with pytest.raises(SchemaError, match=r"field n: schema 2 .* string; .* int"):
        run(spark, table, log, Schemas({1: THING, 2: older}, newest=1))
    assert table.progress is None
    # A record that a valid record supersedes is not decoded.
    add(log, "k", 3)
    run(spark, table, log, Schemas({1: THING, 2: older}, newest=1))
    assert table.state("n") == {"k": 3}


def test_history_contains_every_version_and_quarantined_record(spark: SparkSession) -> None:
    log = log_of({"a": [1, "bad", 2, "bad"]})

    class History(MemoryTable):
        def write(self, batch):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
            self.batch_rows = [
                (row["n"], row["__outbox_reason"]) for row in sorted(batch.rows.collect(), key=lambda r: r["_offset"])
            ]
            self.progress = batch.committed
            return super().write(replace(batch, rows=batch.rows.where("false"), counts=DecodedCounts(0, 0, 0)))

    table = History()
    run(spark, table, log, SCHEMAS, MaterializeOptions(mode=Mode.HISTORY))
    assert table.batch_rows == [(1, None), (None, "undecodable"), (2, None), (None, "undecodable")]


def test_quarantines_a_malformed_sequence_of_a_poisoned_key_once(spark: SparkSession) -> None:
    """The unreadable record of the key makes the run read the offset range a second time."""
    log = Log("test.thing", partitions=1)
    add(log, "a", 1)
    log.append("a", framed(THING, 1, {"n": 2}), "malformed")
    add(log, "a", "poison")
    table = MemoryTable()
    run(spark, table, log, SCHEMAS)
    assert sorted(row["_offset"] for row in table.quarantine) == [1, 2]
    assert table.state("n") == {"a": 1}
