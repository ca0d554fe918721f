"""A batch is read once where its schemas are those that were expected, and again where they are not."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_log import Log, Schemas, framed, sequence
from live_topic import LiveTopic
from memory_table import JOB, MemoryTable
from pyspark.sql import SparkSession
from tables import Target, staging_tables

from outbox_spark.applying import apply

OLD = {"type": "record", "name": "Thing", "fields": [{"name": "n", "type": "int"}]}
NEW = {**OLD, "fields": [*OLD["fields"], {"name": "m", "type": "int", "default": 7}]}  # type: ignore[misc]
OTHER = {"type": "record", "name": "Thing", "fields": [{"name": "n", "type": "string"}]}


class Expecting(Schemas):
    """A registry whose subject has every schema among its newest versions."""

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
    assert applied.records == len(log.records)
    return table, len(live.reads)


@pytest.mark.parametrize(("known", "reads"), [(Expecting, 1), (Schemas, 2)])
def test_an_older_schema_costs_a_second_read_only_where_it_is_unexpected(
    spark: SparkSession, known: type[Schemas], reads: int
) -> None:
    table, read = run(spark, log_of(1, 2, 1), known({1: OLD, 2: NEW}, newest=2))
    assert table.state("n", "m") == {"k0": (0, 7), "k1": (1, 1), "k2": (2, 7)}
    assert read == reads


def test_a_schema_that_does_not_fit_is_no_error_where_no_record_has_it(spark: SparkSession) -> None:
    table, read = run(spark, log_of(2), Expecting({2: NEW, 3: OTHER}, newest=2))
    assert table.state("n", "m") == {"k0": (0, 0)}
    assert read == 1


def test_an_unknown_id_is_set_apart_and_the_rest_is_read(spark: SparkSession) -> None:
    table, _ = run(spark, log_of(2, 9), Expecting({2: NEW}, newest=2))
    assert table.state("n", "m") == {"k0": (0, 0)}
    assert [row["_reason"] for row in table.quarantine] == ["unknown-schema-id"]


def test_what_the_first_read_saw_is_not_used_by_the_second(spark: SparkSession) -> None:
    """Between the two the cleaner removes the record that made the second one necessary."""
    schemas, log = Schemas({1: OLD, 2: NEW}, newest=2), log_of(1, 2)
    live, table = LiveTopic(spark, log, schemas), MemoryTable()
    live.before_read = lambda _: live.compact("k0") if len(live.reads) == 2 else None
    applied = apply(JOB, table, None, log.range_from(None), live.topic(), schemas)  # type: ignore[arg-type]
    assert applied.records == 1
    assert set(table.rows) == {"k1"}


@pytest.mark.parametrize(("schema_ids", "reads"), [((2, 2), 1), ((1, 2), 1), ((9, 2), 3)])
def test_postgres_takes_the_rows_in_the_pass_that_reads_them(
    spark: SparkSession, postgres_target: Target, schema_ids: tuple[int, ...], reads: int
) -> None:
    """Unless a record cannot be read: what was staged goes, and the batch is read as for every other target."""
    schemas, log = Expecting({1: OLD, 2: NEW}, newest=2), log_of(*schema_ids)
    live = LiveTopic(spark, log, schemas)
    with postgres_target.open() as table:
        applied = apply(postgres_target.job, table, None, log.range_from(None), live.topic(), schemas)  # type: ignore[arg-type]
    assert (applied.records, len(live.reads)) == (2, reads)
    expected = {f"k{number}": {"n": number} for number, each in enumerate(schema_ids) if each != 9}
    assert postgres_target.state("n") == expected
    assert staging_tables(postgres_target) == []
