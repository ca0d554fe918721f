"""What is done to a postgres table beside writing batches: reconcile, rebuild, ledger, maintenance."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from psycopg.sql import SQL, Composable, Identifier
from pyspark.sql import DataFrame, SparkSession

from outbox_spark.decoding.columns import DELETED_AT_COLUMN, KEY_COLUMN, METADATA_COLUMNS, VALID_TO_COLUMN
from outbox_spark.sinks.postgres import replace
from outbox_spark.sinks.postgres.session import jdbc_settings, jdbc_url
from outbox_spark.sinks.postgres.statements import OFFSETS_TABLE
from outbox_spark.sinks.target_table import TOMBSTONES_SUFFIX

if TYPE_CHECKING:
    from outbox_spark.sinks.postgres.table import PostgresTable

_FETCHED_ROWS = 10_000


def versions(table: PostgresTable) -> DataFrame:
    """Key and METADATA_COLUMNS of the current rows, through one connection: a snapshot."""
    target, live = table._target, table._live_columns()
    names = SQL(", ").join(Identifier(name) for name in (KEY_COLUMN, *METADATA_COLUMNS))
    query: Composable = SQL("select {} from {}").format(names, Identifier(target.schema, table._table))
    gone = [name for name in (DELETED_AT_COLUMN, VALID_TO_COLUMN) if name in live]
    if gone:
        current = SQL(" and ").join(SQL("{} is null").format(Identifier(name)) for name in gone)
        query = SQL("{} where {}").format(query, current)
    return (
        SparkSession.active()
        .read.format("jdbc")
        .options(
            **jdbc_settings(target),
            url=jdbc_url(target),
            driver="org.postgresql.Driver",
            query=query.as_string(table._open),
            fetchsize=_FETCHED_ROWS,
        )
        .load()
    )


def forget_deletions(table: PostgresTable, before: datetime) -> int:
    """Remove ledger entries whose record is older than `before`; returns how many."""
    if not table._exists(table._table + TOMBSTONES_SUFFIX):
        return 0
    with table._explained():
        found = table._open.execute(
            SQL("delete from {} where _timestamp < %s").format(table._sql().tombstones), (before,)
        )
    return found.rowcount


def replace_by(table: PostgresTable, shadow: PostgresTable) -> None:
    """Make the content of `shadow` this table's, in one transaction."""
    replace.replace_by(table, shadow)


def drop(table: PostgresTable) -> None:
    """Remove the table, its ledger and its progress; the quarantine stays."""
    statements = table._sql()
    with table._explained(), table._open.transaction():
        for name in (statements.target, statements.tombstones):
            table._execute(SQL("drop table if exists {}").format(name))
        if table._exists(OFFSETS_TABLE):
            table._open.execute(SQL("delete from {} where table_name = %s").format(statements.offsets), (table._table,))
    table._seen_run = None


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
