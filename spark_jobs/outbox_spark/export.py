"""Current rows of lake tables as JSON lines, for whoever compares them with something that is not Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from outbox_spark.json_text import JSON_OPTIONS
from outbox_spark.model import DeltaTarget, IcebergTarget, MaterializeJob
from outbox_spark.sinks.iceberg import table_name


def export(spark: SparkSession, jobs: Sequence[MaterializeJob], folder: Path) -> None:
    """Write the rows of every lake table to `folder`/<target>/<table>/*.json; nulls are written too."""
    for job in jobs:
        rows = _rows(spark, job)
        if rows is not None:
            path = folder.resolve() / job.target_name / job.table
            # One text per value, whatever the session's settings: micros, always with the offset.
            rows.coalesce(1).write.mode("overwrite").options(**JSON_OPTIONS).json(path.as_uri())


def _rows(spark: SparkSession, job: MaterializeJob) -> DataFrame | None:
    if isinstance(job.target, DeltaTarget):
        return spark.read.format("delta").load(f"{job.target.path.rstrip('/')}/{job.table}")
    if isinstance(job.target, IcebergTarget):
        return spark.table(table_name(spark, job.target, job.table))
    return None
