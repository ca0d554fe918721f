"""A batch is read once if its schemas are expected, and twice otherwise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.kafka_log import Log, Schemas, framed, sequence
from tests.spark.live_topic import LiveTopic
from tests.spark.memory_table import JOB, MemoryTable
from tests.spark.table_under_test import Target, staging_tables

from outbox_events.errors import RefusedError
from outbox_spark.jobs.model import Mode
from outbox_spark.runs.apply_batch import apply
from outbox_spark.sinks import PostgresTable, StagedRows

OLD = {"type": "record", "name": "Thing", "fields": [{"name": "n", "type": "int"}]}
NEW = {**OLD, "fields": [*OLD["fields"], {"name": "m", "type": "int", "default": 7}]}  # type: ignore[misc]
OTHER = {"type": "record", "name": "Thing", "fields": [{"name": "n", "type": "string"}]}


class AllRecent(Schemas):
    """A registry in which every schema is a recent version of the subject."""

    def recent(self, subject: str) -> dict[int | str, str]:
        assert subject == "test.thing-value"
        return {number: self.version(subject, number) for number in self.by_number}


def log_of(*schema_ids: int) -> Log:
    log = Log("test.thing", partitions=1)
    for number, schema_id in enumerate(schema_ids):
        state: dict[str, Any] = {"n": number, "m": number}
        log.append(f"k{number}", framed(NEW if schema_id == 2 else OLD, schema_id, state), sequence(number))
    return log


def run(spark: SparkSession, log: Log, schemas: Schemas) -> tuple[MemoryTable, int]:
    live, table = LiveTopic(spark, log, schemas), MemoryTable()
    applied = apply(JOB, table, None, log.range_from(None), live.topic(), schemas)  # type: ignore[arg-type]
    assert applied.record_count == len(log.records)
    return table, len(live.reads)


@pytest.mark.parametrize(("known", "reads"), [(AllRecent, 1), (Schemas, 2)])
def test_reads_again_only_for_an_unexpected_older_schema(spark: SparkSession, known: type[Schemas], reads: int) -> None:
    table, read = run(spark, log_of(1, 2, 1), known({1: OLD, 2: NEW}, newest=2))
    assert table.state("n", "m") == {"k0": (0, 7), "k1": (1, 1), "k2": (2, 7)}
    assert read == reads


def test_accepts_an_incompatible_schema_that_no_record_uses(spark: SparkSession) -> None:
    table, read = run(spark, log_of(2), AllRecent({2: NEW, 3: OTHER}, newest=2))
    assert table.state("n", "m") == {"k0": (0, 0)}
    assert read == 1


def test_quarantines_an_unknown_id_and_reads_the_rest(spark: SparkSession) -> None:
    table, _ = run(spark, log_of(2, 9), AllRecent({2: NEW}, newest=2))
    assert table.state("n", "m") == {"k0": (0, 0)}
    assert [row["__outbox_reason"] for row in table.quarantine] == ["unknown-schema-id"]


def test_second_read_does_not_use_results_of_the_first(spark: SparkSession) -> None:
    """Between the reads, compaction removes the record that caused the second read."""
    schemas, log = Schemas({1: OLD, 2: NEW}, newest=2), log_of(1, 2)
    live, table = LiveTopic(spark, log, schemas), MemoryTable()
    live.before_read = lambda _: live.compact("k0") if len(live.reads) == 2 else None
    applied = apply(JOB, table, None, log.range_from(None), live.topic(), schemas)  # type: ignore[arg-type]
    assert applied.record_count == 1
    assert set(table.rows) == {"k1"}


BAD = -1


def poisoned(*schema_ids: int) -> Log:
    """Return records of these schemas; BAD is a value with a frame but no body."""
    log = log_of(*[max(item, 1) for item in schema_ids])
    log.records[:] = [
        replace(record, value=record.value[:5]) if record.value and schema_id == BAD else record
        for record, schema_id in zip(log.records, schema_ids, strict=True)
    ]
    return log


@pytest.mark.parametrize(
    ("known", "schema_ids", "reads"),
    [
        pytest.param(AllRecent, (2, 2), 1, id="expected schemas"),
        pytest.param(AllRecent, (1, 2), 1, id="expected older schema"),
        pytest.param(Schemas, (1, 2), 2, id="unexpected schema"),
        pytest.param(AllRecent, (9, 2), 3, id="unknown schema"),
        pytest.param(AllRecent, (BAD, 2), 2, id="unreadable value", marks=pytest.mark.long),
    ],
)
def test_stages_postgres_rows_while_reading(
    postgres_target: Target, spark: SparkSession, known: type[Schemas], schema_ids: tuple[int, ...], reads: int
) -> None:
    """If a record is unreadable or has an unexpected schema, staging is dropped and the batch is read again."""
    schemas, log = known({1: OLD, 2: NEW}, newest=2), poisoned(*schema_ids)
    live = LiveTopic(spark, log, schemas)
    with postgres_target.open() as table:
        applied = apply(postgres_target.job, table, None, log.range_from(None), live.topic(), schemas)  # type: ignore[arg-type]
        assert staging_tables(postgres_target) == []
    assert (applied.record_count, len(live.reads)) == (2, reads)
    expected = {f"k{number}": {"n": number} for number, item in enumerate(schema_ids) if item in (1, 2)}
    assert postgres_target.state("n") == expected
    assert len(postgres_target.rows("__quarantine")) == 2 - len(expected)


def test_does_not_stage_during_reading_after_poison(
    postgres_target: Target, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    schemas, log = AllRecent({1: OLD, 2: NEW}, newest=2), poisoned(BAD, 2)
    live, sent = LiveTopic(spark, log, schemas), []
    stage_early = PostgresTable.stage_early

    def recording(*arguments: Any) -> StagedRows | None:  # noqa: ANN401 - as stage_early has them
        sent.append(stage_early(*arguments))
        return sent[-1]

    monkeypatch.setattr(PostgresTable, "stage_early", recording)
    with postgres_target.open() as table:
        first = apply(postgres_target.job, table, None, log.range_from(None), live.topic(), schemas)  # type: ignore[arg-type]
        log.append("k7", framed(NEW, 2, {"n": 7, "m": 7}), sequence(7))
        read = log.range_from(first.committed)
        apply(postgres_target.job, table, first.committed, read, live.topic(), schemas)  # type: ignore[arg-type]
    assert [item is None for item in sent] == [False, True]
    assert postgres_target.state("n") == {"k1": {"n": 1}, "k7": {"n": 7}}


def test_removes_staging_of_a_rejected_batch(postgres_target: Target, spark: SparkSession) -> None:
    """The mixture of records with and without a sequence is detected after the rows have been staged."""
    schemas, log = AllRecent({1: OLD, 2: NEW}, newest=2), log_of(2)
    log.append("k1", framed(NEW, 2, {"n": 1, "m": 1}), None)
    live = LiveTopic(spark, log, schemas)
    with pytest.raises(RefusedError, match="records without a source_sequence"), postgres_target.open() as table:
        apply(postgres_target.job, table, None, log.range_from(None), live.topic(), schemas)  # type: ignore[arg-type]
    assert staging_tables(postgres_target) == []


def test_stages_unreadable_records_for_a_history(postgres_target: Target, spark: SparkSession) -> None:
    target = postgres_target.in_mode(Mode.HISTORY)
    schemas, log = AllRecent({1: OLD, 2: NEW}, newest=2), poisoned(BAD, 2)
    live = LiveTopic(spark, log, schemas)
    with target.open() as table:
        apply(target.job, table, None, log.range_from(None), live.topic(), schemas)  # type: ignore[arg-type]
    assert len(live.reads) == 1
    assert [row["n"] for row in target.rows()] == [1]
    assert len(target.rows("__quarantine")) == 1
