"""Several tables at the same time: the threads, and the command with --threads."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from pyspark.sql import SparkSession
from tests.spark.in_memory_topic import SCHEMA, topic_in_memory
from tests.spark.job_files import write_job_file
from tests.spark.kafka_log import Log, framed, sequence
from tests.spark.table_under_test import Target

from outbox_spark.commands import run_each
from outbox_spark.commands.materialize import Runner, main
from outbox_spark.commands.workers import SingleWorker, Workers, WorkerThreads
from outbox_spark.jobs.job_file import as_text
from outbox_spark.runs import materialize_table

WAIT_SECONDS = 120


@contextmanager
def named() -> Iterator[str]:
    """Open a worker, which is the name of its thread."""
    yield threading.current_thread().name


@contextmanager
def workers(threads: int, stop: threading.Event | None = None) -> Iterator[Workers[str]]:
    stop = stop or threading.Event()
    if threads == 1:
        with named() as worker:
            yield SingleWorker(worker, stop)
    else:
        with WorkerThreads(threads, named, stop) as opened:
            yield opened


@pytest.mark.parametrize("threads", [1, 2])
def test_returns_the_result_or_the_error_of_each_function(threads: int) -> None:
    def fail(_: str) -> str:
        raise ValueError("b")

    with workers(threads) as opened:
        for _ in range(2):
            results = dict(opened.call({"a": lambda _: "a", "b": fail, "c": lambda _: "c"}))
            assert results["a"]() + results["c"]() == "ac"
            with pytest.raises(ValueError, match="b"):
                results["b"]()


@pytest.mark.parametrize("threads", [1, 2])
def test_calls_no_function_after_a_stop_request(threads: int) -> None:
    stop, called = threading.Event(), list[int]()

    def function(number: int, _: str) -> None:
        called.append(number)
        stop.set()

    with workers(threads, stop) as opened:
        for _, result in opened.call({number: partial(function, number) for number in range(9)}):
            result()
    assert 1 <= len(called) <= threads


def test_threads_work_at_the_same_time_and_close_their_workers() -> None:
    barrier, closed = threading.Barrier(2), list[str]()

    @contextmanager
    def open_worker() -> Iterator[str]:
        with named() as worker:
            yield worker
        closed.append(worker)

    with WorkerThreads(2, open_worker, threading.Event()) as opened:
        names = [result() for _, result in opened.call(dict.fromkeys("ab", wait_at(barrier)))]
        assert not closed
    assert set(names) == set(closed)
    assert len(closed) == 2


def wait_at(barrier: threading.Barrier) -> Callable[[str], str]:
    def function(worker: str) -> str:
        barrier.wait(WAIT_SECONDS)
        return worker

    return function


def test_opens_a_worker_again_after_an_error() -> None:
    errors = iter([ValueError("not yet"), None])

    @contextmanager
    def open_worker() -> Iterator[str]:
        if (error := next(errors)) is not None:
            raise error
        yield "open"

    with WorkerThreads(1, open_worker, threading.Event()) as opened:
        (_, first), (_, second) = opened.call({1: str, 2: str})
        with pytest.raises(ValueError, match="not yet"):
            first()
        assert second() == "open"


def test_does_not_wait_for_threads_after_an_interrupt() -> None:
    release, stop, called = threading.Event(), threading.Event(), list[int]()

    def wait(number: int, _: str) -> None:
        called.append(number)
        release.wait(WAIT_SECONDS)

    def interrupted() -> None:
        with WorkerThreads(2, named, stop) as opened:
            next(opened.call({0: lambda _: None, **{number: partial(wait, number) for number in range(1, 9)}}))
            raise KeyboardInterrupt

    before = threading.enumerate()
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert stop.is_set()
    release.set()
    for thread in set(threading.enumerate()).difference(before):
        thread.join(WAIT_SECONDS)
    assert len(called) <= 2, "the others were not started"


# --- the command


@pytest.fixture
def run_command(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., list[dict[str, Any]]]:
    """Run the command for tables of a target, and return its results."""

    def run(target: Target, tables: list[str], *options: str) -> list[dict[str, Any]]:
        job_file = write_job_file(tmp_path, as_text([structs.replace(target.job, table=table) for table in tables]))
        assert main(["--job", str(job_file), "--threads", "2", "--output", "json", *options]) == 0
        results: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["materializations"]
        return results

    monkeypatch.setattr(run_each, "start_session", lambda *_, **__: spark)
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)
    return run


@pytest.fixture
def log() -> Iterator[Log]:
    log = Log("test.thing", partitions=1)
    for number in range(3):
        log.append(f"k{number}", framed(SCHEMA, 1, {"n": number}), sequence(number))
    with topic_in_memory(log):
        yield log


@pytest.mark.usefixtures("log")
def test_tables_are_processed_at_the_same_time(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    run_command: Callable[..., list[dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Each batch of one table starts before the batch of the other table ends, and has its own metrics and progress."""
    barrier, apply, metrics = threading.Barrier(2), materialize_table.apply, tmp_path / "metrics.jsonl"
    pools = set[str | None]()

    def apply_together(*arguments: Any) -> Any:  # noqa: ANN401 - of apply()
        barrier.wait(WAIT_SECONDS)
        pools.add(spark.sparkContext.getLocalProperty("spark.scheduler.pool"))
        return apply(*arguments)

    monkeypatch.setattr(materialize_table, "apply", apply_together)
    for name in ("postgres_target", "delta_target", "iceberg_target"):
        target, metrics_of_target = request.getfixturevalue(name), metrics.with_suffix(f".{name}")
        results = run_command(target, ["thing", "other"], "--metrics", str(metrics_of_target))
        assert [(result["table"], result["status"]) for result in results] == [
            ("thing", "changed"),
            ("other", "changed"),
        ]
        lines = [json.loads(line) for line in metrics_of_target.read_text().splitlines()]
        counts = sorted((line["table"], line["event"], line["batch"], line["upserts"]) for line in lines)
        assert counts == [(table, event, 1, 3) for table in ("other", "thing") for event in ("batch", "run")]
        assert all(line["spark"]["tasks"] > 0 for line in lines if line["event"] == "batch")
        assert [row["n"] for row in target.rows()] == [0, 1, 2]
        assert [result["status"] for result in run_command(target, ["thing", "other"])] == ["unchanged"] * 2
    assert pools == {"outbox-worker-1", "outbox-worker-2"}


@pytest.mark.usefixtures("log")
def test_a_stop_ends_all_rounds_after_their_batches(
    postgres_target: Target,
    run_command: Callable[..., list[dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    barrier, on_batch = threading.Barrier(2), Runner._on_batch

    def stop_together(runner: Runner, *arguments: Any) -> None:  # noqa: ANN401 - of _on_batch
        barrier.wait(WAIT_SECONDS)
        assert runner.stop is not None
        runner.stop.set()
        on_batch(runner, *arguments)

    monkeypatch.setattr(Runner, "_on_batch", stop_together)
    results = run_command(postgres_target, ["thing", "other", "third"], "--interval", "1", "--batch-records", "2")
    assert results == []
    progress = {table: committed_offset(postgres_target, table) for table in ("thing", "other", "third")}
    assert progress == {"thing": 2, "other": 2, "third": None}


def committed_offset(target: Target, table: str) -> int | None:
    committed = Target(target.spark, structs.replace(target.job, table=table)).committed()
    return None if committed is None else committed.offsets[0]
