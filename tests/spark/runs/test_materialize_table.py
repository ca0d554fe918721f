"""For any log and any division into runs, the table contains the newest state of each key of the log."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from tests.spark import oracle
from tests.spark.kafka_log import Log, Record, Schemas, framed, sequence
from tests.spark.live_topic import LiveTopic
from tests.spark.table_under_test import Target

from outbox_events.contract.headers import SOURCE_SEQUENCE
from outbox_events.errors import RefusedError
from outbox_spark.decoding.framing import last_header
from outbox_spark.jobs.model import Ordering, UnsequencedRecords
from outbox_spark.runs import materialize_table
from outbox_spark.runs.materialize_table import materialize

THING_1 = {
    "type": "record",
    "name": "Thing",
    "fields": [{"name": "n", "type": "int"}, {"name": "note", "type": ["null", "string"], "default": None}],
}
THING_2 = {**THING_1, "fields": [*THING_1["fields"], {"name": "size", "type": "long", "default": 7}]}
SCHEMAS = Schemas({1: THING_1, 2: THING_2}, newest=2)
NAMES = ("n", "note", "size")


def thing(n: int, note: object = None, size: object = None) -> tuple[bytes, dict[str, Any]]:
    """Return a value and its state in schema 2. A value with a size has schema 2; any other value has schema 1."""
    if size is None:
        return framed(THING_1, 1, {"n": n, "note": note}), {"n": n, "note": note, "size": 7}
    state = {"n": n, "note": note, "size": size}
    return framed(THING_2, 2, state), state


def put(log: Log, key: str, commit: int, n: int, **more: str | int | None) -> Record:
    value, state = thing(n, **more)
    return log.append(key, value, sequence(commit), state)


def delete(log: Log, key: str, commit: int) -> Record:
    return log.append(key, None, sequence(commit))


def random_log(seed: int, count: int) -> Log:
    """Return changes, tombstones and re-creations of a few keys, with replays of parts of the log."""
    rng = random.Random(seed)  # noqa: S311
    log = Log("test.thing")
    for commit in range(1, count + 1):
        key = f"k{rng.randrange(12)}"
        kind = rng.random()
        if kind < 0.2:
            delete(log, key, commit)
        elif kind < 0.3 and log.records:
            replay(log, rng.sample(log.records, k=min(5, len(log.records))))
        else:
            put(
                log,
                key,
                commit,
                commit,
                size=rng.choice([None, commit]),
                note=rng.choice([None, "", "é\t\\\n"]),
            )
    return log


def replay(log: Log, records: list[Record]) -> None:
    """Append records again, as a connector that restarted from an older position does."""
    for record in sorted(records, key=lambda r: r.sequence or ""):
        log.append(record.key, record.value, record.sequence, record.state, record.partition)


@pytest.mark.long  # test_postgres_equals_the_oracle_for_random_histories does more, with fewer records
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_postgres_equals_the_oracle_after_every_run(postgres_target: Target, seed: int) -> None:
    equals_the_oracle(postgres_target, seed, runs=3)


def test_delta_equals_the_oracle_after_every_run(delta_target: Target) -> None:
    equals_the_oracle(delta_target, seed=4, runs=2)


def equals_the_oracle(target: Target, seed: int, runs: int) -> None:
    log = random_log(seed, count=120)
    rng = random.Random(seed)  # noqa: S311
    cuts = [{p: rng.randint(0, end) for p, end in log.end().items()} for _ in range(runs - 1)]
    cuts = [{p: sorted(cut[p] for cut in cuts)[i] for p in log.end()} for i in range(runs - 1)]
    for end in [*cuts, log.end()]:
        target.run(log, SCHEMAS, end)
        assert target.state(*NAMES) == oracle.states(log.before(end))


def test_stale_replay_changes_nothing(target: Target) -> None:
    log = Log("test.thing")
    old = [put(log, "a", 1, 1), put(log, "b", 2, 2)]
    put(log, "c", 3, 3)
    put(log, "a", 4, 4)
    delete(log, "b", 5)
    target.run(log, SCHEMAS)
    before = target.rows()
    replay(log, old)
    outcome = target.run(log, SCHEMAS)
    assert target.rows() == before
    assert (outcome.records, outcome.upserts, outcome.deletes, outcome.tombstones) == (2, 0, 0, 0)
    assert target.committed().offsets == log.end()


def test_deleted_key_can_be_recreated(target: Target) -> None:
    log = Log("test.thing")
    put(log, "a", 1, 1)
    first = target.run(log, SCHEMAS)
    delete(log, "a", 2)
    second = target.run(log, SCHEMAS)
    assert target.rows() == []
    assert {row["aggregate_id"]: row["_sequence"] for row in target.rows("__tombstones")} == {"a": sequence(2)}
    put(log, "a", 3, 3)
    third = target.run(log, SCHEMAS)
    assert target.state("n") == {"a": {"n": 3}}
    assert [outcome.upserts for outcome in (first, second, third)] == [1, 0, 1]
    assert [outcome.deletes for outcome in (first, second, third)] == [0, 1, 0]


def test_tombstone_of_an_unknown_key_prevents_resurrection(target: Target) -> None:
    log = Log("test.thing")
    delete(log, "a", 5)
    target.run(log, SCHEMAS)
    put(log, "a", 4, 4)
    target.run(log, SCHEMAS)
    assert target.rows() == []


def test_newer_source_epoch_precedes_higher_wal_positions(target: Target) -> None:
    """After a restore of the source, its WAL positions may be lower than those of earlier records."""
    log = Log("test.thing")
    for commit, epoch, visible in ((9, 0, 1), (1, 1, 2), (10, 0, 2)):
        value, state = thing(len(log.records) + 1)
        log.append("a", value, sequence(commit, epoch=epoch), state)
        target.run(log, SCHEMAS)
        assert target.state("n", "_sequence") == {"a": {"n": visible, "_sequence": log.records[visible - 1].sequence}}


def test_topics_without_the_header_are_ordered_by_offset(postgres_target: Target) -> None:
    log = Log("test.thing")
    for n in (3, 1, 2):
        value, state = thing(n)
        log.append("a", value, None, state)
    postgres_target.run(log, SCHEMAS)
    log.append("b", None, None)
    postgres_target.run(log, SCHEMAS)
    assert postgres_target.state("n") == {"a": {"n": 2}}


def test_rejects_records_with_and_without_the_header(postgres_target: Target) -> None:
    log = Log("test.thing")
    put(log, "a", 1, 1)
    log.append("b", thing(2)[0], None)
    with pytest.raises(RefusedError, match=r"without a source_sequence header.*partition 0, offset 0"):
        postgres_target.run(log, SCHEMAS)
    assert postgres_target.committed() is None


def test_quarantines_records_without_the_header(target: Target) -> None:
    """They neither change rows nor decide the ordering, even if they are the first records or cannot be decoded."""
    target = target.with_unsequenced(UnsequencedRecords.QUARANTINE)
    log = Log("test.thing")
    log.append("a", thing(7)[0], None)
    target.run(log, SCHEMAS)
    assert target.rows() == []
    put(log, "a", 1, 1)
    log.append("a", None, None)
    log.append("b", b"?", None)
    put(log, "c", 3, 3)
    target.run(log, SCHEMAS)
    assert target.state("n") == {"a": {"n": 1}, "c": {"n": 3}}
    quarantined = [(row["reason"], row["aggregate_id"]) for row in target.rows("__quarantine")]
    assert quarantined == [("invalid:_sequence", None)] * 3
    assert target.committed().ordering is Ordering.SEQUENCE  # type: ignore[union-attr]


def test_table_ordered_by_offset_becomes_ordered_by_the_header(target: Target) -> None:
    """A stray first record does not determine the order of the table permanently."""
    log = Log("test.thing")
    for key in ("a", "b"):
        log.append(key, thing(9)[0], None)
    target.run(log, SCHEMAS)
    put(log, "a", 2, 2)
    put(log, "a", 1, 1)
    target.run(log, SCHEMAS)
    assert target.state("n") == {"a": {"n": 2}, "b": {"n": 9}}
    assert target.committed().ordering is Ordering.SEQUENCE  # type: ignore[union-attr]
    log.append("b", thing(8)[0], None)
    with pytest.raises(RefusedError, match=r"without a source_sequence header.*partition 0, offset 1"):
        target.run(log, SCHEMAS)


def test_empty_topic_creates_an_empty_table(target: Target) -> None:
    outcome = target.run(Log("test.thing"), SCHEMAS)
    assert (outcome.records, outcome.keys) == (0, 0)
    assert target.rows() == []
    assert target.committed().ordering is None


def test_only_the_first_run_of_a_table_is_one_batch(postgres_target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(materialize_table, "BATCH_RECORDS", 4)
    log, messages = Log("test.thing", partitions=1), list[str]()

    def batches(max_records: int | None = None) -> int:
        topic = LiveTopic(postgres_target.spark, log, SCHEMAS).topic()
        return materialize(
            postgres_target.spark, postgres_target.job, messages.append, max_records, topic=topic
        ).batches

    for commit in range(1, 10):
        put(log, f"k{commit}", commit, commit)
    assert batches() == 1
    for commit in range(10, 20):
        put(log, f"k{commit}", commit, commit)
    assert batches() == 3
    for commit in range(20, 30):
        put(log, f"k{commit}", commit, commit)
    assert batches(max_records=5) == 2


def test_uses_the_last_header_of_a_name(spark: SparkSession) -> None:
    twice = [("source_sequence", b"first"), ("other", b"x"), ("source_sequence", b"last"), ("after", b"y")]
    rows = [(1, twice), (2, twice[1:2]), (3, []), (4, None)]
    frame = spark.createDataFrame(rows, "n int, headers array<struct<key: string, value: binary>>")
    value = last_header(F.col("headers"), SOURCE_SEQUENCE).alias("s")
    actual = {row["n"]: row["s"] for row in frame.select("n", value).collect()}
    assert actual == {1: b"last", 2: None, 3: None, 4: None}
