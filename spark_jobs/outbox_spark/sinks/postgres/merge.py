"""Merge one staged batch in the caller's transaction. Statements that would not change anything are not executed."""

from __future__ import annotations

from psycopg.sql import SQL, Identifier

from outbox_spark.jobs.model import Mode, WriteCounts
from outbox_spark.session.persisted import DecodedCounts
from outbox_spark.sinks.postgres.connection import Connection, scalar
from outbox_spark.sinks.postgres.history_sql import HistoryMergeStatements
from outbox_spark.sinks.postgres.merge_sql import MergeStatements
from outbox_spark.sinks.postgres.staging import analyze
from outbox_spark.sinks.postgres.statements import TableStatements


def apply_staged(
    connection: Connection,
    tables: TableStatements,
    staging: Identifier,
    counts: DecodedCounts,
    topic_id: str,
    *,
    is_new_table: bool,
    may_repeat: bool = True,
) -> WriteCounts:
    """Apply a staged batch and return the counts. If `is_new_table`, the table is empty and has no primary key yet.

    `may_repeat` is that of the batch.
    """
    quarantined = 0
    if counts.quarantined or not is_new_table:  # otherwise there are no joins
        analyze(connection, staging)
    if counts.quarantined:
        quarantined = connection.execute(MergeStatements(tables, staging, topic_id).merge_quarantine()).rowcount
    has_quarantine = _has_rows(connection, tables.quarantine)
    has_ledger = not is_new_table and _has_rows(connection, tables.tombstones)
    if tables.mode is Mode.HISTORY:
        history = HistoryMergeStatements(tables, staging, topic_id, is_new_table, has_ledger, has_quarantine)
        write_counts = _add_versions(connection, history, counts)
    else:
        merge = MergeStatements(tables, staging, topic_id, is_new_table, has_ledger, has_quarantine, may_repeat)
        write_counts = _change_rows(connection, merge, counts)
    return write_counts.plus(WriteCounts(quarantined=quarantined))


def rewrite_staged(connection: Connection, tables: TableStatements, staging: Identifier, topic_id: str) -> WriteCounts:
    """Replace the values of rows that have the same version as a staged row. Return the number of these rows."""
    analyze(connection, staging)
    merge = MergeStatements(tables, staging, topic_id, has_quarantine=_has_rows(connection, tables.quarantine))
    return WriteCounts(sum(connection.execute(statement).rowcount for statement in merge.rewrite_rows()))


def _change_rows(connection: Connection, merge: MergeStatements, counts: DecodedCounts) -> WriteCounts:
    upserts = deletes = tombstones = 0
    if counts.tombstones:
        # merge_tombstones() compares tombstones with the rows of their keys, so it is executed before delete_rows().
        tombstones = connection.execute(merge.merge_tombstones()).rowcount
        if not merge.is_new_table:
            deletes = connection.execute(merge.delete_rows()).rowcount
    if counts.live:
        upserts = connection.execute(merge.merge_rows()).rowcount
        if merge.has_ledger:
            connection.execute(merge.remove_superseded_tombstones())
    _add_keys_and_flags(connection, merge, counts)
    return WriteCounts(upserts, deletes, tombstones)


def _add_versions(connection: Connection, merge: HistoryMergeStatements, counts: DecodedCounts) -> WriteCounts:
    row_count, tombstones, deletes = counts.live, counts.tombstones, 0
    if not merge.is_new_table:
        known_counts = [connection.execute(statement).rowcount for statement in merge.remove_known()]
        row_count, tombstones = row_count - known_counts[0], tombstones - known_counts[1]
    if tombstones:
        connection.execute(merge.merge_tombstones())
    if (row_count or tombstones) and not merge.is_new_table:
        (deletes,) = connection.execute(merge.close_rows()).fetchone() or (0,)
    if row_count:
        connection.execute(merge.merge_rows())
    _add_keys_and_flags(connection, merge, counts)
    return WriteCounts(row_count, deletes, tombstones)


def _add_keys_and_flags(connection: Connection, merge: MergeStatements, counts: DecodedCounts) -> None:
    """Add a new table's primary key, and flag rows as stale if they are older than the batch's quarantined records."""
    for statement in merge.tables.add_keys() if merge.is_new_table else ():
        connection.execute(statement)
    if counts.quarantined:
        connection.execute(merge.flag_stale())


def _has_rows(connection: Connection, table: Identifier) -> bool:
    return bool(scalar(connection, SQL("select exists (select from {})").format(table)))
