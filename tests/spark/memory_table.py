"""A target in memory that applies batches in Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs
from pyspark.sql import Column as Expression
from pyspark.sql import Row, SparkSession
from pyspark.sql.types import StructType
from tests.spark.kafka_log import Log, Schemas
from tests.spark.live_topic import LiveTopic
from tests.spark.table_under_test import job_for

from outbox_spark.decoding.columns import KEY_COLUMN, Column
from outbox_spark.jobs.model import MaterializeOptions, PostgresTarget, ReadRange, TableProgress, WriteCounts
from outbox_spark.kafka.ordering import VERSION_COLUMNS
from outbox_spark.runs.apply_batch import AppliedBatch, apply
from outbox_spark.sinks import Batch

JOB = job_for(PostgresTarget("127.0.0.1", 1, "d", "u", "p"))


@dataclass
class MemoryTable:
    """Rows by key, versions of deletions by key, and quarantined records."""

    rows: dict[str, Row] = field(default_factory=dict)
    deleted: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    quarantine: list[Row] = field(default_factory=list)
    progress: TableProgress | None = None

    def __enter__(self) -> MemoryTable:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing, because there is no lock."""

    def committed(self) -> TableProgress | None:
        return self.progress

    def check(self, columns: Sequence[Column], schema: StructType) -> None:
        """Accept everything."""

    @staticmethod
    def is_unsupported(column: Column, value: Expression) -> Expression | None:  # noqa: ARG004 - of the protocol
        return None

    def stage_early(self, *_: object) -> None:
        """Stage nothing."""

    def write(self, batch: Batch) -> WriteCounts:
        rows = batch.rows.collect()
        assert len(rows) == batch.counts.rows
        valid = [row for row in rows if row["__outbox_reason"] is None]
        assert len({row[KEY_COLUMN] for row in valid}) == len(valid)
        for row in valid:
            key, version = row[KEY_COLUMN], version_of(row)
            stored = self.rows.get(key)
            if max(version_of(stored) if stored else (), self.deleted.get(key, ())) >= version:
                continue
            self.rows.pop(key, None)
            if row["__outbox_deleted"]:
                self.deleted[key] = version
            else:
                self.rows[key] = row
        quarantined = [row for row in rows if row["__outbox_reason"] is not None]
        self.quarantine += quarantined
        self.progress = batch.committed
        return WriteCounts(len(valid), 0, 0, len(quarantined))

    def stale(self) -> set[str]:
        """Return the keys of rows for which the quarantine has a newer record."""
        return {
            row[KEY_COLUMN]
            for row in self.quarantine
            if row[KEY_COLUMN] in self.rows and version_of(row) > version_of(self.rows[row[KEY_COLUMN]])
        }

    def state(self, *names: str) -> dict[str, Any]:
        """Return one column, or a tuple of several columns, by key."""
        single = len(names) == 1
        return {key: row[names[0]] if single else tuple(row[n] for n in names) for key, row in self.rows.items()}

    def reasons(self) -> dict[bytes, str]:
        """Return the reasons of quarantined records by record key."""
        return {bytes(row["__outbox_key"]): row["__outbox_reason"] for row in self.quarantine}


def version_of(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in VERSION_COLUMNS)


def run(
    spark: SparkSession,
    table: MemoryTable,
    log: Log,
    schemas: Schemas,
    options: MaterializeOptions = MaterializeOptions(),  # noqa: B008 - frozen
    end: dict[int, int] | None = None,
) -> AppliedBatch:
    """Apply one batch, from the progress of the table to `end` (by default, the end of the log)."""
    read_range = log.range_from(table.progress, end)
    return apply_range(spark, table, log, read_range, schemas, options)


def apply_range(
    spark: SparkSession,
    table: MemoryTable,
    log: Log,
    read_range: ReadRange,
    schemas: Schemas,
    options: MaterializeOptions,
) -> AppliedBatch:
    job = structs.replace(JOB, options=options)
    topic = LiveTopic(spark, log, schemas).topic()
    return apply(job, table, table.progress, read_range, topic, schemas)  # type: ignore[arg-type]
