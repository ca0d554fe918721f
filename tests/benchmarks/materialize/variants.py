"""Variants timed on the topic of the backfill: steps of the jobs, the jobs themselves, and a naive job.

Each variant reads the whole topic. The jobs run through runs.materialize, so everything that a run does is timed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

import psycopg
from psycopg.sql import SQL, Identifier
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.avro.functions import from_avro
from tests.benchmarks.materialize.events import SCHEMA
from tests.benchmarks.materialize.place import Place

from outbox_spark.jobs.model import Committed, MaterializeJob, Outcome, ReadRange
from outbox_spark.kafka.offset_ranges import TopicState, describe, resolve
from outbox_spark.kafka.ordering import sequence_of
from outbox_spark.kafka.range_reader import read_records
from outbox_spark.kafka.topic_access import topic_of
from outbox_spark.runs import materialize_table
from outbox_spark.runs.newest_per_key import newest_of

NEWER_EPOCH = 1
_FRAME_BYTES = 5


def quiet(_: str) -> None:
    """Discard the progress of the jobs: the benchmark prints its own."""


def records(here: Place, job: MaterializeJob) -> DataFrame:
    """Return the whole topic as a run reads it."""
    return read_records(here.spark, job.kafka, resolve(describe(job.kafka, job.topic), None))


def read(here: Place, job: MaterializeJob) -> None:
    """Minimum of every run: read each record with its source_sequence and discard it."""
    columns = ["key", "value", "partition", "offset", "timestamp"]
    _nowhere(records(here, job).select(*columns, sequence_of(F.col("headers"))))


def reduce(here: Place, job: MaterializeJob) -> None:
    """Read the newest record of each key and discard it."""
    topic = topic_of(here.spark, job)
    _nowhere(newest_of(job, topic, resolve(topic.describe(), None)))


def materialize(here: Place, job: MaterializeJob) -> Outcome:
    """Read from the progress of the table to the end of the topic; create the table if it does not exist."""
    return materialize_table.materialize(here.spark, job, quiet)


def merge_newer(here: Place, job: MaterializeJob) -> Outcome:
    """The topic once more, as if all of it had been written later: each row that is there changes."""
    with _from_the_beginning(NEWER_EPOCH):
        return materialize(here, job)


def replay(here: Place, job: MaterializeJob) -> Outcome:
    """The topic once more, as it was: after merge_newer each record is stale."""
    with _from_the_beginning(0):
        return materialize(here, job)


@contextmanager
def _from_the_beginning(epoch: int) -> Iterator[None]:
    """Make runs read the whole topic again. A greater partition epoch makes the same records newer versions."""

    def again(topic: TopicState, _: Committed | None) -> ReadRange:
        return replace(resolve(topic, None), partition_epoch=epoch)

    with mock.patch.object(materialize_table, "resolve", again):
        yield


def naive(here: Place, job: MaterializeJob) -> None:
    """Naive job: decode everything, row_number, JDBC into a staging table, upsert.

    No reader setting, no order but the offset, no guard against older records, no ledger, no progress.
    """
    schema = SCHEMA.read_text(encoding="utf-8")
    source = here.spark.read.format("kafka").option("subscribe", job.topic)
    loaded = source.option("kafka.bootstrap.servers", job.kafka["bootstrap.servers"]).load()
    body = F.substring("value", _FRAME_BYTES + 1, 2**31 - 1)
    decoded = loaded.select(
        F.col("key").cast("string").alias("aggregate_id"),
        F.col("value").isNull().alias("deleted"),
        "offset",
        from_avro(body, schema).alias("book"),
    )
    window = Window.partitionBy("aggregate_id").orderBy(F.desc("offset"))
    newest = decoded.withColumn("place", F.row_number().over(window)).where("place = 1")
    rows = newest.select("aggregate_id", "deleted", "book.*")
    staging = f"{job.table}_staging"
    state = here.state
    rows.write.format("jdbc").mode("overwrite").options(
        url=f"jdbc:postgresql://{state.postgres_host}:{state.postgres_port}/{state.target_database}"
        "?reWriteBatchedInserts=true",
        driver="org.postgresql.Driver",
        dbtable=staging,
        user=state.materializer_user,
        password=state.materializer_password,
    ).save()
    columns = [name for name in rows.columns if name != "deleted"]
    with here.warehouse() as connection, connection.transaction():
        _upsert(connection, job.table, staging, columns)


def _upsert(connection: psycopg.Connection[tuple[object, ...]], table: str, staging: str, columns: list[str]) -> None:
    names = SQL(", ").join(map(Identifier, columns))
    target, source = Identifier(table), Identifier(staging)
    updates = SQL(", ").join(SQL("{0} = excluded.{0}").format(Identifier(name)) for name in columns[1:])
    connection.execute(
        SQL("create table if not exists {} as select {} from {} with no data").format(target, names, source)
    )
    connection.execute(SQL("alter table {} add primary key (aggregate_id)").format(target))
    connection.execute(
        SQL(
            "insert into {} ({}) select {} from {} where not deleted on conflict (aggregate_id) do update set {}"
        ).format(target, names, names, source, updates)
    )
    connection.execute(
        SQL("delete from {} t using {} s where s.deleted and s.aggregate_id = t.aggregate_id").format(target, source)
    )
    connection.execute(SQL("drop table {}").format(source))


def _nowhere(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()
