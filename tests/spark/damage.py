"""Changes a table behind the job's back."""

from __future__ import annotations

from pathlib import Path

import psycopg
from psycopg.sql import SQL, Identifier
from pyspark.sql import functions as F  # noqa: N812
from tables import Target

from outbox_spark.model import IcebergTarget, ParquetTarget, PostgresTarget
from outbox_spark.parquet_reader import newest_pointer, read_current
from outbox_spark.sinks.iceberg import table_name


def damage(target: Target, key: str, **changed: str | int) -> None:
    """Give columns of a key's row other values; without any, remove the row."""
    if isinstance(target.job.target, ParquetTarget):
        _damage_files(target, key, changed)
        return
    what = ", ".join(f"{name} = {value!r}" for name, value in changed.items())
    statement = f"update {{}} set {what}" if what else "delete from {}"
    statement += f" where aggregate_id = {key!r}"
    if isinstance(target.job.target, PostgresTarget):
        assert target.dsn is not None
        with psycopg.connect(**target.dsn) as connection:
            name = Identifier(target.job.target.schema, target.job.table)
            connection.execute(SQL(statement).format(name))  # type: ignore[arg-type]
        return
    target.spark.sql(statement.format(_sql_name(target))).collect()


def _sql_name(target: Target) -> str:
    if isinstance(target.job.target, IcebergTarget):
        return table_name(target.spark, target.job.target, target.job.table)
    return f"delta.`{target.job.target.path}/{target.job.table}`"  # type: ignore[union-attr]


def _damage_files(target: Target, key: str, changed: dict[str, str | int]) -> None:
    """Write the rows of the current snapshot once more, over what is there."""
    folder = f"{target.job.target.path}/{target.job.table}"  # type: ignore[union-attr]
    rows, theirs = read_current(target.spark, folder), F.col("aggregate_id") == key
    found = rows.where(~theirs).collect()
    if changed:
        values = {name: F.lit(value).cast(rows.schema[name].dataType) for name, value in changed.items()}
        found += rows.where(theirs).withColumns(values).collect()
    pointer = newest_pointer(target.spark, folder)
    assert pointer is not None
    frame = target.spark.createDataFrame(found, rows.schema)
    frame.write.mode("overwrite").parquet(str(Path(folder, pointer["rows"])))
