"""A table under test in any target. Applies ranges of a log to the table, and reads its rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import psycopg
import pytest
from msgspec import structs
from psycopg.rows import dict_row
from psycopg.sql import SQL, Identifier
from pyspark.sql import SparkSession
from tests.spark.kafka_log import Log, Schemas
from tests.spark.live_topic import LiveTopic

from outbox_events.http_session import HttpEndpoint
from outbox_spark.jobs.model import (
    DeltaTarget,
    IcebergTarget,
    MaterializeJob,
    Mode,
    Outcome,
    PostgresTarget,
    ReadRange,
    Status,
    TableProgress,
    UnsequencedRecords,
)
from outbox_spark.runs.apply_batch import AppliedBatch, apply
from outbox_spark.runs.materialize_table import Totals, outcome_of
from outbox_spark.sinks import PostgresTable, TargetTable, open_table
from outbox_spark.sinks.iceberg.catalog import table_name
from outbox_spark.sinks.lake.table import LakeTable


@dataclass
class Target:
    """The table `thing` in one target. `dsn` is set for PostgreSQL."""

    spark: SparkSession
    job: MaterializeJob
    dsn: psycopg.conninfo.ConninfoDict | None = None

    def in_mode(self, mode: Mode) -> Target:
        """Return the same table, materialized in another mode."""
        return replace(self, job=structs.replace(self.job, options=structs.replace(self.job.options, mode=mode)))

    def with_unsequenced(self, handling: UnsequencedRecords) -> Target:
        """Return the same table with another handling of records that have no source_sequence."""
        options = structs.replace(self.job.options, unsequenced_records=handling)
        return replace(self, job=structs.replace(self.job, options=options))

    def shadow(self) -> Target:
        """Return another table of the same target."""
        return replace(self, job=structs.replace(self.job, table="thing__shadow"))

    def replace_by_shadow(self, log: Log, schemas: Schemas) -> None:
        """Fill the shadow table from the log, and replace the table with it."""
        shadow = self.shadow()
        shadow.run(log, schemas)
        with self.open() as table, shadow.open() as source:
            table.replace_by(source)
        progress = self.committed()
        assert progress is not None
        assert progress.offsets == log.end()

    def open(self) -> TargetTable:
        return open_table(self.spark, self.job)

    def committed(self) -> TableProgress | None:
        with self.open() as table:
            return table.committed()

    def run(self, log: Log, schemas: Schemas, end: dict[int, int] | None = None) -> Outcome:
        """Apply one batch, from the committed offsets to `end` (by default, the end of the log)."""
        with self.open() as table:
            committed = table.committed()
            read_range = log.range_from(committed, end)
            started = time.monotonic()
            totals = Totals()
            totals.add(self.apply(table, committed, read_range, log, schemas))
            return outcome_of(self.job, read_range, Status.CHANGED, started, totals)

    def apply(
        self, table: TargetTable, committed: TableProgress | None, read_range: ReadRange, log: Log, schemas: Schemas
    ) -> AppliedBatch:
        topic = LiveTopic(self.spark, log, schemas, requires_sequence=self.job.requires_sequence).topic()
        return apply(self.job, table, committed, read_range, topic, schemas)  # type: ignore[arg-type]

    def rows(self, suffix: str = "") -> list[dict[str, Any]]:
        """Return all rows of the table, or of a companion table."""
        name = self.job.table + suffix
        if isinstance(self.job.target, PostgresTarget):
            assert self.dsn is not None
            with psycopg.connect(**self.dsn, row_factory=dict_row) as connection:
                query = SQL("select * from {}").format(Identifier(self.job.target.schema, name))
                return connection.execute(query).fetchall()
        if isinstance(self.job.target, IcebergTarget):
            sql_name = table_name(self.spark, self.job.target, name)
            frames = (
                [self.spark.table(sql_name).withColumnRenamed("_kafka_partition", "_partition")]
                if self.spark.catalog.tableExists(sql_name)
                else []
            )
        else:
            frames = [self.spark.read.format("delta").load(f"{self.job.target.path}/{name}")]
        return [row.asDict(recursive=True) for frame in frames for row in frame.collect()]

    def state(self, *names: str) -> dict[str, dict[str, Any]]:
        """Return the named columns by key."""
        return {row["aggregate_id"]: {name: row[name] for name in names} for row in self.rows()}


def set_clock(monkeypatch: pytest.MonkeyPatch, clock: Callable[[], datetime]) -> None:
    """Replace the clocks of all targets."""
    for table in (PostgresTable, LakeTable):
        monkeypatch.setattr(table, "current_time", lambda _: clock())


def staging_tables(target: Target) -> list[str]:
    """Return the names of the existing staging tables."""
    assert isinstance(target.job.target, PostgresTarget)
    assert target.dsn is not None
    with psycopg.connect(**target.dsn) as connection:
        rows = connection.execute(
            "select tablename from pg_tables where schemaname = %s and tablename like '%%staging%%'",
            (target.job.target.schema,),
        )
        return [name for (name,) in rows]


def job_for(target: PostgresTarget | DeltaTarget | IcebergTarget) -> MaterializeJob:
    return MaterializeJob(
        aggregate="thing",
        topic="test.thing",
        table="thing",
        kafka={"bootstrap.servers": "127.0.0.1:1"},
        registry=HttpEndpoint("http://127.0.0.1:1"),
        target_name="target",
        target=target,
    )
