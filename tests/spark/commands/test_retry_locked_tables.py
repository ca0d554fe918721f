"""Two drivers with the same tables. Each is refused a table that the other driver has locked."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from msgspec import structs
from tests.spark.in_memory_topic import SCHEMA, topic_in_memory
from tests.spark.kafka_log import Log, framed, sequence
from tests.spark.table_under_test import Target

from outbox_spark.commands import run_each
from outbox_spark.commands.exit_codes import Exit
from outbox_spark.commands.materialize import Runner
from outbox_spark.commands.run_each import run_all
from outbox_spark.commands.run_report import exit_of
from outbox_spark.commands.workers import SingleWorker
from outbox_spark.jobs.model import MaterializeJob, Outcome, Reporter, Status
from outbox_spark.sinks.postgres import table as postgres_table
from outbox_spark.sinks.postgres.connection import Connection
from outbox_spark.sinks.postgres.statements import TableStatements


@pytest.fixture(autouse=True)
def topic(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(run_each, "POLL_SECONDS", 0.1)
    log = Log("test.thing", partitions=1)
    log.append("a", framed(SCHEMA, 1, {"n": 1}), sequence(1))
    with topic_in_memory(log):
        yield


def two_tables(target: Target) -> list[MaterializeJob]:
    return [target.job, structs.replace(target.job, table="other")]


def run(target: Target, jobs: list[MaterializeJob], report: Reporter) -> list[Outcome]:
    runner = Runner(target.spark, report)
    return run_all(jobs, SingleWorker(runner, threading.Event()), report)


def test_tries_a_table_of_another_driver_again(postgres_target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first driver locks the table `thing` until the second driver has been refused it."""
    is_locked, is_refused = threading.Event(), threading.Event()
    messages: list[str] = []

    def hold_lock(*_: object) -> None:
        if not is_locked.is_set():
            is_locked.set()
            assert is_refused.wait(120)

    def report(message: str) -> None:
        messages.append(message)
        if "retrying after the other tables" in message:
            is_refused.set()

    monkeypatch.setattr(Runner, "_on_batch", hold_lock)
    jobs = two_tables(postgres_target)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(run, postgres_target, jobs, lambda _: None)
        assert is_locked.wait(120)
        second = run(postgres_target, jobs[::-1], report)
    assert [exit_of(first.result()), exit_of(second)] == [Exit.DONE, Exit.DONE]
    assert [outcome.status for outcome in first.result()] == [Status.CHANGED, Status.UNCHANGED]
    assert [outcome.status for outcome in second] == [Status.CHANGED, Status.UNCHANGED]
    assert sum("retrying after the other tables" in message for message in messages) == 1


def test_two_first_runs_in_a_schema_both_succeed(postgres_target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both runs create the PostgreSQL schema and the progress table."""
    both_ready, create = threading.Barrier(2, timeout=120), postgres_table.create_offsets_table
    exists = postgres_table.schema_exists

    def exists_for_both(connection: Connection, name: str) -> bool:
        result = exists(connection, name)
        if not result:
            both_ready.wait()
        return result

    def create_together(connection: Connection, tables: TableStatements) -> None:
        both_ready.wait()
        create(connection, tables)

    monkeypatch.setattr(postgres_table, "schema_exists", exists_for_both)
    monkeypatch.setattr(postgres_table, "create_offsets_table", create_together)
    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(lambda job: run(postgres_target, [job], print), two_tables(postgres_target)))
    assert [exit_of(item) for item in outcomes] == [Exit.DONE, Exit.DONE]


def test_fails_if_the_other_run_does_not_end(postgres_target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_each, "WAIT_SECONDS", 0.2)
    jobs, messages = two_tables(postgres_target), list[str]()
    with postgres_target.open():
        outcomes = run(postgres_target, jobs, messages.append)
    assert [outcome.status for outcome in outcomes] == [Status.FAILED, Status.CHANGED]
    assert exit_of(outcomes) == Exit.FAILED
    assert any(line.startswith("waiting at most 0.2 s for other runs of: ") for line in messages)
