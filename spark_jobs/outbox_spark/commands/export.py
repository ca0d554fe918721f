"""Export lake tables to JSON or Parquet files for programs that cannot read Delta or Iceberg."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from outbox_events.errors import RefusedError
from outbox_spark.decoding.json_text import JSON_OPTIONS
from outbox_spark.jobs.model import DeltaTarget, IcebergTarget, MaterializeJob
from outbox_spark.session.run_session import in_run_session
from outbox_spark.sinks.iceberg.catalog import table_name


class ExportFormat(StrEnum):
    """Format of exported files."""

    JSON = "json"
    """JSON Lines; NULL fields are written as null."""
    PARQUET = "parquet"


_EXPORTED_FILE = re.compile(r"\.?(_SUCCESS|part-\d+-[0-9a-f-]{36}-c\d+(\.\w+)?\.(json|parquet))(\.crc)?")
"""Names of the files that Spark writes."""


@in_run_session
def export(
    spark: SparkSession, job: MaterializeJob, folder: Path, file_format: ExportFormat = ExportFormat.JSON
) -> None:
    """Write the rows of a lake table to one file in `folder`/<target>/<table>, and replace any earlier export.

    Raises RefusedError if this folder contains anything other than an export.
    """
    rows = _rows(spark, job)
    if rows is not None:
        path = folder.resolve() / job.target_name / job.table
        _refuse_other_files(path)
        writer = rows.coalesce(1).write.mode("overwrite").format(file_format)
        if file_format is ExportFormat.JSON:
            # Write timestamps with microseconds and a UTC offset.
            writer = writer.options(**JSON_OPTIONS)
        writer.save(path.as_uri())


def _refuse_other_files(path: Path) -> None:
    """Raise RefusedError if Spark did not write all files of the folder, which would delete, for example, a table."""
    names = {entry.name for entry in path.iterdir()} if path.is_dir() else set()
    others = sorted(name for name in names if not _EXPORTED_FILE.fullmatch(name))
    if others or any((path / name).is_dir() for name in names) or path.is_file():
        message = f"{path} is not an earlier export, because it contains {', '.join(others[:3]) or 'folders'}"
        raise RefusedError(message, "choose another folder for --export; nothing was deleted")


def _rows(spark: SparkSession, job: MaterializeJob) -> DataFrame | None:
    if isinstance(job.target, DeltaTarget):
        return spark.read.format("delta").load(f"{job.target.path.rstrip('/')}/{job.table}")
    if isinstance(job.target, IcebergTarget):
        return spark.table(table_name(spark, job.target, job.table))
    return None
