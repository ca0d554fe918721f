"""No statement of the merge scans the table, so the cost does not depend on the table's size. Spark is not used."""

from __future__ import annotations

import re

import psycopg
import pytest
from psycopg.sql import SQL, Composed
from tests.spark.sql_batches import COLUMNS, TOPIC_ID, Table, fresh_schema

from outbox_spark.jobs.model import Mode
from outbox_spark.sinks.postgres.connection import prepare_merge
from outbox_spark.sinks.postgres.history_sql import HistoryMergeStatements
from outbox_spark.sinks.postgres.merge_sql import MergeStatements
from outbox_spark.sinks.postgres.staging import analyze, count_staged, create_staging

ROWS, BATCH = 60_000, 1000
# Every fifth record is a tombstone, and every seventh is poison. All keys are in the table.
FILL = """
insert into {} (aggregate_id, n, _sequence, _partition_epoch, _partition, _offset, _timestamp,
       __outbox_deleted, __outbox_reason)
select md5(i::text), i, lpad(({}::bigint + i)::text, 38, '0'), 0, 0, i, now(),
       {} and i % 5 = 0, case when {} and i % 7 = 0 then 'undecodable' end
from generate_series(1, {}) i
"""


def statements(mode: Mode, table: Table) -> dict[str, Composed]:
    kind = HistoryMergeStatements if mode is Mode.HISTORY else MergeStatements
    merge = kind(table.statements, table.staging, TOPIC_ID, is_new_table=False, has_ledger=True, has_quarantine=True)
    common = {"tombstones": merge.merge_tombstones(), "rows": merge.merge_rows(), "flag": merge.flag_stale()}
    if isinstance(merge, HistoryMergeStatements):
        known = {f"known {number}": statement for number, statement in enumerate(merge.remove_known())}
        return {**common, **known, "close": merge.close_rows()}
    return {**common, "deletes": merge.delete_rows(), "superseded": merge.remove_superseded_tombstones()}


@pytest.mark.parametrize("mode", list(Mode))
def test_small_batch_does_not_scan_the_table(postgres: psycopg.conninfo.ConninfoDict, mode: Mode) -> None:
    with fresh_schema(postgres, "plans") as connection:
        table = Table(connection, "plans", mode)
        fill(table, version=0, mixed=False, rows=ROWS)
        table.apply_staged_rows()
        with connection.transaction():
            prepare_merge(connection)
            fill(table, version=10**9, mixed=True, rows=BATCH)
            count_staged(connection, table.staged())
            analyze(connection, table.staging)
            for name, statement in statements(mode, table).items():
                plan = "\n".join(row[0] for row in connection.execute(SQL("explain ") + statement).fetchall())
                assert not re.search(r"Seq Scan on thing\b", plan), f"{name}:\n{plan}"


def fill(table: Table, *, version: int, mixed: bool, rows: int) -> None:
    table.connection.execute(create_staging(table.staging, COLUMNS))
    statement = SQL(FILL).format(table.staging, version, mixed, mixed, rows)
    table.connection.execute(statement)
