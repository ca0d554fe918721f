"""Current rows of lake tables as JSON lines, for whoever compares them with something that is not Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from outbox_spark.model import DeltaTarget, MaterializeJob

# One text per value, whatever the session's settings: micros, always with the offset.
_OPTIONS = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def export(spark: SparkSession, jobs: Sequence[MaterializeJob], folder: Path) -> None:
    """Write the current rows of every Delta table to `folder`/<target>/<table>/*.json; nulls are written too."""
    for job in jobs:
        if isinstance(job.target, DeltaTarget):
            rows = spark.read.format("delta").load(f"{job.target.path.rstrip('/')}/{job.table}")
            path = folder.resolve() / job.target_name / job.table
            rows.coalesce(1).write.mode("overwrite").options(**_OPTIONS).json(path.as_uri())
