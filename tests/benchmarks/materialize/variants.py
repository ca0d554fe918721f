"""Variants timed on the topic of the backfill: steps of the jobs, the jobs themselves, and a naive job.

Each variant reads the whole topic. The jobs run through runs.materialize, so everything that a run does is timed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar
from unittest import mock

import psycopg
from psycopg.sql import SQL, Identifier
from pyspark.sql import DataFrame, DataFrameReader, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.streaming import DataStreamReader, StreamingQuery
from tests.benchmarks.materialize.events import SCHEMA
from tests.benchmarks.materialize.spark_bench import SparkBench
from tests.spark.spark_kafka import read_records

from outbox_events.contract.headers import SOURCE_SEQUENCE
from outbox_spark.decoding.framing import last_header
from outbox_spark.jobs.model import MaterializeJob, Outcome, ReadRange, TableProgress
from outbox_spark.kafka.offset_ranges import TopicDescription, describe, resolve_range
from outbox_spark.kafka.topic_access import topic_of
from outbox_spark.runs import materialize_table
from outbox_spark.runs.newest_per_key import newest_of

NEWER_EPOCH = 1
_FRAME_BYTES = 5


def quiet(_: str) -> None:
    """Discard the progress of the jobs, because the benchmark prints its own progress."""


def records(bench: SparkBench, job: MaterializeJob) -> DataFrame:
    """Return the whole topic as a run reads it."""
    return read_records(bench.spark, job.kafka, resolve_range(describe(job.kafka, job.topic), None))


def read(bench: SparkBench, job: MaterializeJob) -> None:
    """Read each record with its source_sequence and discard it, which is the minimum that every run does."""
    columns = ["key", "value", "partition", "offset", "timestamp"]
    _discard(records(bench, job).select(*columns, last_header(F.col("headers"), SOURCE_SEQUENCE)))


def reduce(bench: SparkBench, job: MaterializeJob) -> None:
    """Read the newest record of each key and discard it."""
    topic = topic_of(bench.spark, job)
    _discard(newest_of(job, topic, resolve_range(topic.describe(), None)))


def materialize(bench: SparkBench, job: MaterializeJob) -> Outcome:
    """Read from the progress of the table to the end of the topic. Create the table if it does not exist."""
    return materialize_table.materialize(bench.spark, job, quiet)


def merge_newer(bench: SparkBench, job: MaterializeJob) -> Outcome:
    """Materialize the topic again with all records as newer versions, so that every row changes."""
    with _reading_all(NEWER_EPOCH):
        return materialize(bench, job)


def replay(bench: SparkBench, job: MaterializeJob) -> Outcome:
    """Materialize the topic again with the original versions, so that after merge_newer every record is stale."""
    with _reading_all(0):
        return materialize(bench, job)


@contextmanager
def _reading_all(epoch: int) -> Iterator[None]:
    """Make runs read the whole topic again. A greater partition epoch makes the same records newer versions."""

    def resolve_all(topic: TopicDescription, _: TableProgress | None) -> ReadRange:
        return replace(resolve_range(topic, None), partition_epoch=epoch)

    with mock.patch.object(materialize_table, "resolve_range", resolve_all):
        yield


def naive(bench: SparkBench, job: MaterializeJob) -> None:
    """Run a naive job, which decodes everything, applies row_number, writes by JDBC to a staging table, and upserts.

    It has no reader settings, orders only by offset, does not check for older records, and has no ledger or offsets.
    """
    upsert_naively(bench, naive_source(bench.spark.read, job).load(), job.table)


def naive_stream(bench: SparkBench, job: MaterializeJob, checkpoint: str) -> StreamingQuery:
    """Start a job of Structured Streaming that does the same in foreachBatch, as often as possible."""
    stream = naive_source(bench.spark.readStream, job).option("startingOffsets", "earliest").load()

    def write(rows: DataFrame, _: int) -> None:
        upsert_naively(bench, rows, job.table)

    return stream.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint).start()


Reader = TypeVar("Reader", DataFrameReader, DataStreamReader)


def naive_source(reader: Reader, job: MaterializeJob) -> Reader:
    """Return a reader of the topic with Spark's source for Kafka."""
    servers = job.kafka["bootstrap.servers"]
    return reader.format("kafka").option("subscribe", job.topic).option("kafka.bootstrap.servers", servers)


def upsert_naively(bench: SparkBench, records: DataFrame, table: str) -> None:
    """Write the newest record of each key to a staging table, and from there to the table."""
    body = F.substring("value", _FRAME_BYTES + 1, 2**31 - 1)
    decoded = records.select(
        F.col("key").cast("string").alias("aggregate_id"),
        F.col("value").isNull().alias("deleted"),
        "offset",
        from_avro(body, SCHEMA.read_text(encoding="utf-8")).alias("book"),
    )
    window = Window.partitionBy("aggregate_id").orderBy(F.desc("offset"))
    newest = decoded.withColumn("row_rank", F.row_number().over(window)).where("row_rank = 1")
    rows = newest.select("aggregate_id", "deleted", "book.*")
    staging = f"{table}_staging"
    state = bench.state
    rows.write.format("jdbc").mode("overwrite").options(
        url=f"jdbc:postgresql://{state.postgres_host}:{state.postgres_port}/{state.target_database}"
        "?reWriteBatchedInserts=true",
        driver="org.postgresql.Driver",
        dbtable=staging,
        user=state.materializer_user,
        password=state.materializer_password,
    ).save()
    columns = [name for name in rows.columns if name != "deleted"]
    with bench.warehouse() as connection, connection.transaction():
        _upsert(connection, table, staging, columns)


def _upsert(connection: psycopg.Connection[tuple[object, ...]], table: str, staging: str, columns: list[str]) -> None:
    names = SQL(", ").join(map(Identifier, columns))
    target, source = Identifier(table), Identifier(staging)
    updates = SQL(", ").join(SQL("{0} = excluded.{0}").format(Identifier(name)) for name in columns[1:])
    connection.execute(
        SQL("create table if not exists {} as select {} from {} with no data").format(target, names, source)
    )
    connection.execute(
        SQL("create unique index if not exists {} on {} (aggregate_id)").format(Identifier(f"{table}_key"), target)
    )
    connection.execute(
        SQL(
            "insert into {} ({}) select {} from {} where not deleted on conflict (aggregate_id) do update set {}"
        ).format(target, names, names, source, updates)
    )
    connection.execute(
        SQL("delete from {} t using {} s where s.deleted and s.aggregate_id = t.aggregate_id").format(target, source)
    )
    connection.execute(SQL("drop table {}").format(source))


def _discard(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()
