"""Rows are copied into PostgreSQL exactly once, and errors do not quote them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL, Identifier
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from tests.spark.kafka_log import Log, Schemas, framed, sequence
from tests.spark.sql_batches import TOMBSTONE, UPSERT, Change, Table, fresh_schema
from tests.spark.staged_rows import create_table, staged_row
from tests.spark.table_under_test import Target

from outbox_events.errors import OutboxError
from outbox_spark.decoding.columns import KEY_COLUMN
from outbox_spark.jobs.model import PostgresTarget
from outbox_spark.sinks.postgres.staging import StagingTable, copy_plan, copy_rows, count_staged

THING = {
    "type": "record",
    "name": "Thing",
    "fields": [
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "ratio", "type": "double", "default": 0.0},
        {"name": "raw", "type": "bytes", "default": ""},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
    ],
}
SCHEMAS = Schemas({1: THING}, newest=1)


def value(note: str | None, ratio: float = 0.0, raw: bytes = b"", tags: list[str] | None = None) -> bytes:
    return framed(THING, 1, {"note": note, "ratio": ratio, "raw": raw, "tags": tags or []})


def test_copies_special_characters_unchanged(postgres_target: Target) -> None:
    expected: dict[str, dict[str, Any]] = {
        "tab\tin\\the key": {"note": "\t\n\r\\\r\n", "ratio": -0.0, "raw": b"\\x\t\n", "tags": ["\t", "\\", '"']},
        "\\N": {"note": "\\N", "ratio": math.inf, "raw": b"\\N", "tags": ["\\N", "null"]},
        "\\.": {"note": "\\.", "ratio": 1e300, "raw": b"", "tags": []},
        "null": {"note": None, "ratio": 5e-324, "raw": b"\x00\x01", "tags": [""]},
        "empty": {"note": "", "ratio": 0.1, "raw": b"\xff", "tags": ["\U0001f4da"]},
    }
    log = Log("test.thing")
    for commit, (key, state) in enumerate(expected.items()):
        log.append(key, framed(THING, 1, state), sequence(commit))
    log.append("bad\tone", b"\\N\t\n\\", sequence(9))
    # fastavro encodes only valid text, so a byte is replaced afterwards.
    log.append("torn", value("torn").replace(b"torn", b"to\xffn"), sequence(10))
    log.append("gone", None, sequence(11))
    outcome = postgres_target.run(log, SCHEMAS)
    assert postgres_target.state("note", "ratio", "raw", "tags") == expected
    quarantined = {
        row["aggregate_id"]: (bytes(row["value"])[:4], row["reason"]) for row in postgres_target.rows("__quarantine")
    }
    assert quarantined["bad\tone"] == (b"\\N\t\n", "not-wire-format")
    assert quarantined["torn"][1] == "invalid:note"
    assert (outcome.upserts, outcome.tombstones, outcome.quarantined) == (5, 1, 2)


def test_each_task_copies_in_its_own_transaction(
    spark: SparkSession, postgres_target: Target, postgres: psycopg.conninfo.ConninfoDict
) -> None:
    """There are more bytes than one message can contain, and a task without rows."""
    target = postgres_target.job.target
    assert isinstance(target, PostgresTarget)
    text = "\U0001f4da" * 1000
    with fresh_schema(postgres, "tasks") as connection:
        create_table(connection, "tasks")
        rows = spark.range(100).repartition(2).unionAll(spark.range(0)).select(*staged_row(F.concat("id", F.lit(text))))
        reported, _ = copy_rows(copy_plan(rows, [], target), target, '"tasks"."t"')
        counts = connection.execute("select xmin::text::bigint, count(*) from tasks.t group by 1").fetchall()
        lengths = connection.execute(SQL("select distinct length({}) from tasks.t").format(Identifier(KEY_COLUMN)))
        assert sorted(lengths.fetchall()) == [(1001,), (1002,)]
    assert reported == dict(counts)
    assert len(reported) == 2
    assert sum(reported.values()) == 100


@pytest.mark.parametrize("shuffles", [False, True])
def test_a_plan_that_is_executed_again_reads_its_source_again(
    spark: SparkSession,
    postgres_target: Target,
    postgres: psycopg.conninfo.ConninfoDict,
    tmp_path: Path,
    shuffles: bool,
) -> None:
    """Adaptive execution would return the rows of the first execution, because it keeps the stages of a shuffle."""
    target, source = postgres_target.job.target, tmp_path / "source"
    assert isinstance(target, PostgresTarget)
    source.write_text("first")
    read = spark.sparkContext.parallelize([0], 1).map(lambda _: (source.read_text(),)).toDF(["text"])
    rows = read.repartition(2) if shuffles else read.coalesce(1)
    plan = copy_plan(rows.select(*staged_row(F.col("text"))), [], target)
    with fresh_schema(postgres, "again") as connection:
        create_table(connection, "again")
        for text in ("first", "second"):
            source.write_text(text)
            copy_rows(plan, target, '"again"."t"')
        keys = connection.execute(SQL("select {} from again.t order by 1").format(Identifier(KEY_COLUMN)))
        assert keys.fetchall() == [("first",), ("second",)]


def test_ignores_rows_of_unreported_tasks(postgres: psycopg.conninfo.ConninfoDict) -> None:
    """The first attempt of a task committed, but its result was lost. The second attempt staged the rows again."""
    with fresh_schema(postgres, "tries") as connection, psycopg.connect(**postgres) as other:
        table = Table(connection, "tries")
        changes = [Change("a", UPSERT, sequence(1), 1, 1), Change("b", TOMBSTONE, sequence(2), 2)]
        table.stage(changes)
        insert = SQL("insert into {0} select * from {0} returning xmin::text::bigint").format(table.staging)
        reported = other.execute(insert).fetchone()
        assert reported is not None
        other.commit()
        with connection.transaction():
            staged = count_staged(connection, StagingTable(table.staging, {reported[0]: 2}))
        assert (staged.live, staged.tombstones, staged.quarantined) == (1, 1, 0)
        transactions = connection.execute(SQL("select distinct xmin::text::bigint from {}").format(table.staging))
        assert transactions.fetchall() == [reported]


def test_waits_for_a_task_that_is_writing(postgres: psycopg.conninfo.ConninfoDict) -> None:
    with fresh_schema(postgres, "late") as connection, psycopg.connect(**postgres) as late:
        table = Table(connection, "late")
        table.stage([Change("a", UPSERT, sequence(1), 1, 1)])
        late.execute(SQL("insert into {0} select * from {0}").format(table.staging))
        connection.execute("set lock_timeout = '50ms'")
        connection.execute("begin")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            count_staged(connection, StagingTable(table.staging, {}))
        connection.execute("rollback")
        late.rollback()


def test_copy_error_has_the_sqlstate_and_no_row(spark: SparkSession, postgres_target: Target) -> None:
    target = postgres_target.job.target
    assert isinstance(target, PostgresTarget)
    rows = spark.range(1).select(*staged_row(F.lit("s3cret")))
    with pytest.raises(OutboxError, match=r"(?m)COPY failed, SQLSTATE 3F000$") as caught:
        copy_rows(copy_plan(rows, [], target), target, '"nowhere"."thing"')
    assert "s3cret" not in f"{caught.value} {caught.value.__cause__}"
    closed = PostgresTarget("127.0.0.1", 1, "d", "u", "pass-w0rd")
    with pytest.raises(OutboxError, match=r"127\.0\.0\.1:1/d: an executor has no connection") as caught:
        copy_rows(copy_plan(rows, [], closed), closed, '"nowhere"."thing"')
    assert "pass-w0rd" not in f"{caught.value} {caught.value.__cause__}"


def test_error_does_not_quote_the_rejected_row(
    spark: SparkSession, postgres_target: Target, postgres: psycopg.conninfo.ConninfoDict
) -> None:
    target = postgres_target.job.target
    assert isinstance(target, PostgresTarget)
    with fresh_schema(postgres, "refusing") as connection:
        create_table(connection, "refusing", "int4")
        rows = spark.range(1).select(*staged_row(F.lit("s3cret")))
        with pytest.raises(OutboxError, match=r"(?m)SQLSTATE 22P02$") as caught:
            copy_rows(copy_plan(rows, [], target), target, '"refusing"."t"')
        assert connection.execute("select count(*) from refusing.t").fetchone() == (0,)
    assert "s3cret" not in f"{caught.value} {caught.value.__cause__}"
