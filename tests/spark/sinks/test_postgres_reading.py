"""Several tasks read the rows of a large PostgreSQL table."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs
from tests.spark.kafka_log import Log
from tests.spark.table_under_test import Target
from tests.spark.thing_records import SCHEMAS, delete, poison, put

from outbox_spark.decoding.columns import METADATA_COLUMNS, STALE_COLUMN
from outbox_spark.jobs.model import Mode
from outbox_spark.sinks.postgres import connection


def states_of(target: Target) -> tuple[int, dict[str, dict[str, Any]]]:
    with target.open() as table:
        states = table.row_states()
        return states.rdd.getNumPartitions(), {row["aggregate_id"]: row.asDict() for row in states.collect()}


@pytest.mark.parametrize("mode", Mode)
def test_tasks_read_every_row_once(postgres_target: Target, monkeypatch: pytest.MonkeyPatch, mode: Mode) -> None:
    options = structs.replace(postgres_target.job.options, mode=mode)
    target = Target(postgres_target.spark, structs.replace(postgres_target.job, options=options), postgres_target.dsn)
    log = Log("test.thing")
    for number in range(300):
        put(log, f"key {number} {'x' * 400}", number + 1)
    target.run(log, SCHEMAS)
    for number in range(0, 300, 10):
        delete(log, f"key {number} {'x' * 400}", number + 1001)
    poison(log, f"key 1 {'x' * 400}", 2000)
    target.run(log, SCHEMAS)
    count, expected = states_of(target)
    assert count == 1
    assert len(expected) == (300 if mode is Mode.SOFT_DELETE else 270)
    assert [row[STALE_COLUMN] for row in expected.values()].count(True) == 1
    assert {"aggregate_id", *METADATA_COLUMNS} <= set(next(iter(expected.values())))
    monkeypatch.setattr(connection, "TASK_BLOCKS", 3)
    assert states_of(target) == (target.spark.sparkContext.defaultParallelism, expected)
