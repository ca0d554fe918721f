"""Merges one staged batch in the caller's transaction. Statements that would change nothing are not executed."""

from __future__ import annotations

from psycopg.sql import SQL, Identifier

from outbox_spark.jobs.model import Mode, WriteCounts
from outbox_spark.sinks.postgres.connection import Connection
from outbox_spark.sinks.postgres.history_sql import HistoryMergeStatements
from outbox_spark.sinks.postgres.merge_sql import MergeStatements
from outbox_spark.sinks.postgres.staging import StagedCounts, analyze
from outbox_spark.sinks.postgres.statements import TableStatements


def apply_staged(
    connection: Connection,
    tables: TableStatements,
    staging: Identifier,
    counts: StagedCounts,
    topic_id: str,
    *,
    is_new_table: bool,
) -> WriteCounts:
    """Write quarantine, deletions, rows and stale flags. A new table is empty and has no primary key yet."""
    quarantined = 0
    if counts.quarantined or not is_new_table:  # a new table is filled without a join of the staged rows
        analyze(connection, staging)
    if counts.quarantined:
        statements = MergeStatements(tables, staging, topic_id, is_new_table, has_ledger=False, has_quarantine=False)
        quarantined = connection.execute(statements.merge_quarantine()).rowcount
    has_quarantine = _has_rows(connection, tables.quarantine)
    has_ledger = not is_new_table and _has_rows(connection, tables.tombstones)
    if tables.mode is Mode.HISTORY:
        history = HistoryMergeStatements(tables, staging, topic_id, is_new_table, has_ledger, has_quarantine)
        written = _add_versions(connection, history, counts)
    else:
        written = _change_rows(
            connection, MergeStatements(tables, staging, topic_id, is_new_table, has_ledger, has_quarantine), counts
        )
    return written.plus(WriteCounts(quarantined=quarantined))


def _change_rows(connection: Connection, merge: MergeStatements, counts: StagedCounts) -> WriteCounts:
    upserts = deletes = tombstones = 0
    if counts.tombstones:
        # The ledger omits tombstones that are older than their row, so it is written before rows are deleted.
        tombstones = connection.execute(merge.merge_tombstones()).rowcount
        if not merge.is_new_table:
            deletes = connection.execute(merge.delete_rows()).rowcount
    if counts.rows:
        upserts = connection.execute(merge.merge_rows()).rowcount
        if merge.has_ledger:
            connection.execute(merge.remove_superseded_tombstones())
    _finish(connection, merge, counts)
    return WriteCounts(upserts, deletes, tombstones)


def _add_versions(connection: Connection, history: HistoryMergeStatements, counts: StagedCounts) -> WriteCounts:
    rows, tombstones, deletes = counts.rows, counts.tombstones, 0
    if not history.is_new_table:
        stored_rows, stored_tombstones = (connection.execute(s).rowcount for s in history.remove_known())
        rows, tombstones = rows - stored_rows, tombstones - stored_tombstones
    if tombstones:
        connection.execute(history.merge_tombstones())
    if (rows or tombstones) and not history.is_new_table:
        (deletes,) = connection.execute(history.close_rows()).fetchone() or (0,)
    if rows:
        connection.execute(history.merge_rows())
    _finish(connection, history, counts)
    return WriteCounts(rows, deletes, tombstones)


def _finish(connection: Connection, merge: MergeStatements, counts: StagedCounts) -> None:
    """Add the primary key of a new table, and flag rows that are older than the batch's quarantined records."""
    for statement in merge.tables.add_keys() if merge.is_new_table else ():
        connection.execute(statement)
    if counts.quarantined:
        connection.execute(merge.flag_stale())


def _has_rows(connection: Connection, table: Identifier) -> bool:
    row = connection.execute(SQL("select exists (select from {})").format(table)).fetchone()
    return row is not None and bool(row[0])
