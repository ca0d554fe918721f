"""Write to targets. The folder of each kind of target implements `TargetTable`. Delta and Iceberg share `lake`."""

from __future__ import annotations

from pyspark.sql import SparkSession

from outbox_spark.jobs.model import DeltaTarget, IcebergTarget, MaterializeJob, Reporter
from outbox_spark.sinks.delta.table import DeltaTable
from outbox_spark.sinks.iceberg.table import IcebergTable
from outbox_spark.sinks.postgres.connection import KeptConnections
from outbox_spark.sinks.postgres.table import PostgresTable
from outbox_spark.sinks.target_table import Batch, StagedRows, TargetTable

__all__ = ["Batch", "DeltaTable", "IcebergTable", "PostgresTable", "StagedRows", "TargetTable", "open_table"]


def open_table(
    spark: SparkSession,
    job: MaterializeJob,
    report: Reporter = lambda _: None,
    connections: KeptConnections | None = None,
) -> TargetTable:
    """Return the table of a job as a context manager for one run. Iceberg tables are locked only in hadoop catalogs.

    Tables of PostgreSQL leave their connection in `connections`, or close it.
    """
    target, mode = job.target, job.options.mode
    if isinstance(target, DeltaTarget):
        return DeltaTable(spark, target, job.table, mode, report)
    if isinstance(target, IcebergTarget):
        return IcebergTable(spark, target, job.table, mode, report)
    return PostgresTable(target, job.table, mode, connections)
