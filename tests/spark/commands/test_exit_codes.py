"""Ctrl-C: one line, exit code 130, and no traceback."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from tests.spark.job_files import job

from outbox_spark.commands import run_each
from outbox_spark.commands.exit_codes import Exit, print_message, restore_interrupt_handler, run_command

BUSY_SECONDS = 30


def interrupt_when_busy(spark: SparkSession) -> threading.Thread:
    """Send SIGINT as soon as Spark runs a job."""
    tracker = spark.sparkContext.statusTracker()
    waited = threading.Event()

    def watch() -> None:
        for _ in range(BUSY_SECONDS * 20):
            if tracker.getActiveStageIds():
                os.kill(os.getpid(), signal.SIGINT)
                return
            waited.wait(0.05)

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def test_messages_contain_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    print_message("key \x1b[2J\x9b \u202e\r\n\tat java.lang.Object")
    assert capsys.readouterr().err == "key \\x1b[2J\\x9b \\u202e\\r\n\tat java.lang.Object\n"


def test_prints_one_line_for_an_interrupted_spark_job(spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> None:
    def body() -> int:
        spark.range(10**11).agg(F.max(F.xxhash64("id"))).collect()
        return 0

    restore_interrupt_handler()
    thread = interrupt_when_busy(spark)
    try:
        code = run_command(body, debug=False)
    finally:
        # A command stops Spark, but here the session and the job continue.
        spark.sparkContext.cancelAllJobs()
        thread.join()
    assert code == Exit.INTERRUPTED == 130
    message = [line for line in capfd.readouterr().err.splitlines() if not line.startswith("WARNING: Using incubator")]
    assert len(message) == 1
    assert message[0].startswith("interrupted: ")
    # The session continues, as in a notebook.
    assert spark.range(3).count() == 3


def test_replaces_the_signal_handler_of_spark_for_every_command(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGINT)

    def handler(*_: object) -> None: ...

    monkeypatch.setattr(run_each, "start_session", lambda name, **_: signal.signal(signal.SIGINT, handler) and name)
    try:
        run_each.start_spark("outbox-maintain")
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_interrupt_while_spark_starts_is_raised_after_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted start leaves a JVM running, which waits for connections."""
    steps: list[str] = []

    class Session:
        def stop(self) -> None:
            steps.append("stop")

    def start(_: str, **__: object) -> Session:
        signal.raise_signal(signal.SIGINT)
        steps.append("started")
        return Session()

    monkeypatch.setattr(run_each, "start_session", start)
    with restored_interrupt_handler(), pytest.raises(KeyboardInterrupt):
        run_each.start_spark()
    assert steps == ["started", "stop"]


def test_a_second_interrupt_while_spark_starts_is_raised_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: str, **__: object) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        pytest.fail("the start continued")

    monkeypatch.setattr(run_each, "start_session", start)
    with restored_interrupt_handler(), pytest.raises(KeyboardInterrupt):
        run_each.start_spark()


@pytest.mark.parametrize("swallows", [True, False])
def test_an_interrupt_after_spark_has_replaced_the_handler(monkeypatch: pytest.MonkeyPatch, swallows: bool) -> None:
    """Spark's handler calls Java. During another call, it raises a Py4J error, or the interrupt is discarded."""
    stops: list[str] = []

    def handle(*_: object) -> None:
        if not swallows:
            raise Py4JError("an error occurred while calling cancelAllJobs")

    def start(name: str, **_: object) -> SimpleNamespace:
        signal.signal(signal.SIGINT, handle)
        signal.raise_signal(signal.SIGINT)
        return SimpleNamespace(stop=lambda: stops.append(name))

    monkeypatch.setattr(run_each, "start_session", start)
    with restored_interrupt_handler():
        assert run_command(lambda: run_each.start_spark("outbox-maintain") and 0, debug=False) == Exit.INTERRUPTED
    assert stops == (["outbox-maintain"] if swallows else [])


def test_an_error_of_the_start_without_an_interrupt_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: str, **__: object) -> None:
        raise Py4JError("no connection")

    monkeypatch.setattr(run_each, "start_session", start)
    with restored_interrupt_handler(), pytest.raises(Py4JError):
        run_each.start_spark()


@contextmanager
def restored_interrupt_handler() -> Iterator[None]:
    """Set Python's SIGINT handler during the block, because tests that run in the background ignore the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("name", ["", "py4j.clientserver"])
def test_py4j_logs_no_traceback_of_an_interrupt(name: str, caplog: pytest.LogCaptureFixture) -> None:
    def body() -> int:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            logging.getLogger(name).exception("Exception occurred while shutting down connection")
            raise

    assert run_command(body, debug=False) == Exit.INTERRUPTED
    assert caplog.records == []


def fail_after_interrupt() -> int:
    """Raise an error after KeyboardInterrupt, as Py4J does when Java does not respond."""
    try:
        raise KeyboardInterrupt
    finally:
        message = "Answer from Java side is empty"
        raise Py4JNetworkError(message)


def test_error_during_shutdown_is_an_interrupt(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(fail_after_interrupt, debug=False) == Exit.INTERRUPTED
    assert capsys.readouterr().err.startswith("interrupted: ")
    with pytest.raises(KeyboardInterrupt):
        run_each.attempt(job("book"), print, fail_after_interrupt, lambda _: 1, debug=False)


def test_keeps_other_errors_unchanged() -> None:
    def body() -> int:
        raise Py4JNetworkError("no connection")

    with pytest.raises(Py4JNetworkError):
        run_command(body, debug=False)


def test_debug_prints_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    def body() -> int:
        raise KeyboardInterrupt

    assert run_command(body, debug=True) == Exit.INTERRUPTED
    printed = capsys.readouterr().err
    assert "Traceback" in printed
    assert printed.splitlines()[-1].startswith("interrupted: ")
