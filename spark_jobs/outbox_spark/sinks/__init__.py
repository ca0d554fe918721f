"""Targets. Each module holds one kind: a class with the methods of `TargetTable`."""

from __future__ import annotations

from pyspark.sql import SparkSession

from outbox_spark.errors import ConfigurationError
from outbox_spark.jobs.model import DeltaTarget, IcebergTarget, MaterializeJob, PostgresTarget
from outbox_spark.sinks.delta.table import DeltaTable
from outbox_spark.sinks.iceberg.table import IcebergTable
from outbox_spark.sinks.postgres.table import PostgresTable
from outbox_spark.sinks.target_table import Batch, Sent, TargetTable

__all__ = ["Batch", "DeltaTable", "IcebergTable", "PostgresTable", "Sent", "TargetTable", "open_table"]


def open_table(spark: SparkSession, job: MaterializeJob) -> TargetTable:
    """The table of a job; a context manager that holds the table for one run."""
    if isinstance(job.target, PostgresTarget):
        return PostgresTable(job.target, job.table, job.options.mode)
    if isinstance(job.target, DeltaTarget):
        return DeltaTable(spark, job.target, job.table, job.options.mode)
    if isinstance(job.target, IcebergTarget):
        return IcebergTable(spark, job.target, job.table, job.options.mode)
    message = f"{job}: there is no sink for {type(job.target).__name__}"
    raise ConfigurationError(message, "name another target")
