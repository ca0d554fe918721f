"""Applies one staged batch, inside the caller's transaction. A statement that has nothing to do is not run."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
from psycopg.rows import TupleRow
from psycopg.sql import SQL, Composed, Identifier

from outbox_spark.jobs.model import Mode, Written
from outbox_spark.sinks.postgres.history_sql import History
from outbox_spark.sinks.postgres.merge_sql import Merge
from outbox_spark.sinks.postgres.staging import Staged, analyze
from outbox_spark.sinks.postgres.statements import Statements

Connection = psycopg.Connection[TupleRow]


def apply_staged(connection: Connection, tables: Statements, staged: Staged, topic_id: str, *, first: bool) -> Written:
    """Quarantine, deletions, rows, flags. `first`: the table has just been made, and has no key yet."""
    quarantined = 0
    if staged.quarantined or not first:  # a new table is filled without a join of the staged rows
        analyze(connection, staged.staging)
    if staged.quarantined:
        plain = Merge(tables, staged.staging, topic_id, first, ledger=False, poison=False)
        quarantined = connection.execute(plain.merge_quarantine()).rowcount
    poison = _any(connection, tables.quarantine)
    ledger = not first and _any(connection, tables.tombstones)
    if tables.mode is Mode.HISTORY:
        history = History(tables, staged.staging, topic_id, first, ledger, poison)
        written = _add_versions(connection, history, staged)
    else:
        written = _change_rows(connection, Merge(tables, staged.staging, topic_id, first, ledger, poison), staged)
    return written.plus(Written(quarantined=quarantined))


def _change_rows(connection: Connection, merge: Merge, staged: Staged) -> Written:
    upserts = deletes = tombstones = 0
    if staged.tombstones:
        # The ledger leaves out what is older than its row: before the row goes, or, marked, takes the version over.
        tombstones = connection.execute(merge.merge_tombstones()).rowcount
        if not merge.first:
            deletes = connection.execute(merge.delete_rows()).rowcount
    if staged.rows:
        upserts = connection.execute(merge.merge_rows()).rowcount
        if merge.ledger:
            connection.execute(merge.forget_revived())
    _add_keys(connection, merge)
    if staged.quarantined:
        connection.execute(merge.flag_stale())
    return Written(upserts, deletes, tombstones)


def _add_versions(connection: Connection, history: History, staged: Staged) -> Written:
    rows, tombstones, deletes = staged.rows, staged.tombstones, 0
    if not history.first:
        known = [connection.execute(statement).rowcount for statement in history.forget_known()]
        rows, tombstones = rows - known[0], tombstones - known[1]
    if tombstones:
        connection.execute(history.merge_tombstones())
    if (rows or tombstones) and not history.first:
        (deletes,) = connection.execute(history.close_rows()).fetchone() or (0,)
    if rows:
        connection.execute(history.merge_rows())
    _add_keys(connection, history)
    if staged.quarantined:
        connection.execute(history.flag_stale())
    return Written(rows, deletes, tombstones)


def _add_keys(connection: Connection, merge: Merge) -> None:
    if merge.first:
        _execute_all(connection, merge.tables.add_keys())


def _execute_all(connection: Connection, statements: Sequence[Composed]) -> None:
    for statement in statements:
        connection.execute(statement)


def _any(connection: Connection, table: Identifier) -> bool:
    found = connection.execute(SQL("select exists (select from {})").format(table)).fetchone()
    return found is not None and bool(found[0])
