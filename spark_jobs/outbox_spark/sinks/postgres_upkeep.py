"""What is done to a postgres table beside writing batches: reconcile, rebuild, ledger, maintenance."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from psycopg.sql import SQL
from pyspark.sql import DataFrame

if TYPE_CHECKING:
    from outbox_spark.sinks.postgres import PostgresTable


def versions(table: PostgresTable) -> DataFrame:
    raise NotImplementedError


def forget_deletions(table: PostgresTable, before: datetime) -> int:
    raise NotImplementedError


def replace_by(table: PostgresTable, shadow: PostgresTable) -> None:
    raise NotImplementedError


def drop(table: PostgresTable) -> None:
    raise NotImplementedError


def maintain(table: PostgresTable) -> str:
    """Vacuum and analyze the table and its ledger; says how many dead rows that removed, as the server counts them.

    Rows that a transaction elsewhere may still see stay; the next call removes them.
    """
    tables = table._sql()
    parts = []
    with table._explained():
        for held in (tables.target, tables.tombstones):
            name = held.as_string(table._open)
            before = _dead_rows(table, name)
            # Not in a transaction: the connection is in autocommit.
            table._open.execute(SQL("vacuum (analyze) {}").format(held))
            parts.append(f"{name}: {before} dead rows before, {_dead_rows(table, name)} after")
    return "; ".join(parts)


def _dead_rows(table: PostgresTable, name: str) -> int:
    row = table._one(SQL("select n_dead_tup from pg_stat_user_tables where relid = %s::regclass"), name)
    return 0 if row is None else int(row[0])
