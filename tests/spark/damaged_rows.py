"""Changes of a table that are made outside of outbox-materialize."""

from __future__ import annotations

import psycopg
from psycopg.sql import SQL, Identifier
from tests.spark.table_under_test import Target

from outbox_spark.jobs.model import IcebergTarget, PostgresTarget
from outbox_spark.sinks.iceberg.catalog import table_name


def damage(target: Target, key: str, condition: str = "true", **changed: str | int | None) -> None:
    """Set columns of those rows of a key to which the condition applies. Without columns, delete these rows."""
    assignments = ", ".join(f"{name} = {'null' if value is None else repr(value)}" for name, value in changed.items())
    statement = f"update {{}} set {assignments}" if assignments else "delete from {}"
    statement += f" where aggregate_id = {key!r} and {condition}"
    if isinstance(target.job.target, PostgresTarget):
        assert target.dsn is not None
        with psycopg.connect(**target.dsn) as connection:
            name = Identifier(target.job.target.schema, target.job.table)
            connection.execute(SQL(statement).format(name))  # type: ignore[arg-type]
        return
    target.spark.sql(statement.format(sql_name(target))).collect()


def sql_name(target: Target) -> str:
    """Return the name of a lake table for Spark SQL."""
    if isinstance(target.job.target, IcebergTarget):
        return table_name(target.spark, target.job.target, target.job.table)
    return f"delta.`{target.job.target.path}/{target.job.table}`"  # type: ignore[union-attr]
