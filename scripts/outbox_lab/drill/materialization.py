"""Run the Spark job to materialize a cell's topic, and compare the resulting table with the ledger."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import IO

import psycopg
from psycopg import sql

from outbox_events.errors import OutboxError
from outbox_kit.stack.services.java import SPARK_TIMEOUT_S, job_command, job_environment
from outbox_lab.drill.ledger import Ledger
from outbox_lab.drill.project import ENVIRONMENT
from outbox_lab.drill.stack import DrillStack

RUNS = 3
CONNECT_TIMEOUT_S = 10
SHOWN_DIFFERENCES = 5


def differences(drill: DrillStack, pipeline_file: Path, cell: str, ledger: Ledger) -> list[str]:
    """Run the Spark job. Return the differences between its table and the newest committed events in the ledger."""
    _run_job(drill, pipeline_file, drill.logs / f"{cell}.spark.log")
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


def _run_job(drill: DrillStack, pipeline_file: Path, log: Path) -> None:
    """Run the job, and run it again after a failure, as schedulers do. Raises OutboxError after RUNS failed runs."""
    drill.wait_for_registry()
    with log.open("wb") as output:
        codes = (_job_exit_code(drill, pipeline_file, output) for _ in range(RUNS))
        if all(codes):
            raise OutboxError(f"{RUNS} runs of the Spark job failed", f"see {log}")


def _job_exit_code(drill: DrillStack, pipeline_file: Path, output: IO[bytes]) -> int:
    try:
        return subprocess.run(
            job_command(pipeline_file, ENVIRONMENT),
            cwd=drill.project.folder,
            env=job_environment(),
            stdout=output,
            stderr=output,
            timeout=SPARK_TIMEOUT_S,
            check=False,
        ).returncode
    except subprocess.TimeoutExpired:
        raise OutboxError(f"the Spark job took more than {SPARK_TIMEOUT_S} s") from None
