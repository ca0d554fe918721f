"""Run the Spark job to materialize a cell's topic, and compare the resulting table with the ledger."""

from __future__ import annotations

from pathlib import Path

import psycopg
from psycopg import sql

from outbox_lab.drill.ledger import Ledger
from outbox_lab.drill.stack import DrillStack

CONNECT_TIMEOUT_S = 10
SHOWN_DIFFERENCES = 5


def differences(drill: DrillStack, pipeline_file: Path, cell: str, ledger: Ledger) -> list[str]:
    """Run the Spark job. Return the differences between its table and the newest committed events in the ledger."""
    drill.wait_for_registry()
    drill.spark_job.run(pipeline_file)
    query = sql.SQL("select id, version from public.{}").format(sql.Identifier(cell))
    with psycopg.connect(drill.state.target, connect_timeout=CONNECT_TIMEOUT_S) as connection:
        actual: dict[str, int] = dict(connection.execute(query).fetchall())
    expected = {event.account: event.version for event in ledger.newest().values() if not event.is_tombstone}
    found = [
        f"{account}: the table has version {actual.get(account)}, the ledger {expected.get(account)}"
        for account in sorted(actual.keys() | expected.keys())
        if actual.get(account) != expected.get(account)
    ]
    return found[:SHOWN_DIFFERENCES]
