"""Retried tasks, in a separate session because local[*] does not retry tasks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from msgspec import structs
from tests.spark import retrying_driver
from tests.spark.retrying_driver import ROWS
from tests.spark.sql_batches import fresh_schema
from tests.spark.staged_rows import create_table
from tests.spark.table_under_test import Target

from outbox_spark.jobs.model import PostgresTarget


@pytest.mark.long  # test_retried_task_that_stages_twice_changes_nothing simulates the retry
def test_counts_rows_of_a_retried_task_once(postgres_target: Target, postgres: psycopg.conninfo.ConninfoDict) -> None:
    """Counts and rows must be those of the successful attempts."""
    target = postgres_target.job.target
    assert isinstance(target, PostgresTarget)
    with fresh_schema(postgres, "retries") as connection:
        create_table(connection, "retries")
        command = [sys.executable, retrying_driver.__file__, json.dumps(structs.asdict(target)), '"retries"."t"']
        environment = {**os.environ, "SPARK_MASTER": "local[2,3]", "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=240, check=False, cwd=Path.cwd()
        )
        assert done.returncode == 0, done.stderr[-2000:]
        assert "simulated failure of the first attempt" in done.stderr, "no task failed"
        reported = json.loads(done.stdout.splitlines()[-1])
        assert reported["sums"] == {"rows": ROWS, "offsets": ROWS}
        counts = connection.execute("select xmin::text, count(*) from retries.t group by 1").fetchall()
    assert reported["attempts"] == dict(counts)
    assert sum(reported["attempts"].values()) == ROWS
