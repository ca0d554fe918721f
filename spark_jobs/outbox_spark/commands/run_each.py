"""Runs jobs one after another in one Spark session. A failure of one job does not affect the others."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import TypeVar

from pyspark.sql import SparkSession

from outbox_spark.commands.exit_codes import print_message, report_error, restore_interrupt_handler, was_interrupted
from outbox_spark.commands.interval import Stopped
from outbox_spark.errors import OutboxKitError
from outbox_spark.jobs.model import MaterializeJob, Reporter
from outbox_spark.session.error_redaction import debug_traceback, redacted
from outbox_spark.session.spark_session import start_session

APPLICATION_NAME = "outbox-materialize"
R = TypeVar("R")


def start_spark(name: str = APPLICATION_NAME) -> SparkSession:
    """Start Spark for a command. Afterwards Ctrl-C raises KeyboardInterrupt.

    The first Ctrl-C during the start raises it after the start, because PySpark leaves a JVM running if the start of
    the JVM is interrupted.
    """
    with _first_interrupt_deferred() as interrupts:
        spark = start_session(name)
    if interrupts:
        spark.stop()
        raise KeyboardInterrupt
    return spark


@contextmanager
def _first_interrupt_deferred() -> Iterator[list[int]]:
    """Add the signal number to the list at the first Ctrl-C during the block; a second one raises KeyboardInterrupt."""
    interrupts: list[int] = []

    def handle_signal(signum: int, _frame: FrameType | None) -> None:
        signal.signal(signum, signal.default_int_handler)
        interrupts.append(signum)
        print_message("interrupted: waiting until Spark has started; interrupt again to end now")

    is_main_thread = threading.current_thread() is threading.main_thread()
    if is_main_thread and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, handle_signal)
    try:
        yield interrupts
    finally:
        restore_interrupt_handler()  # start_session() installed Spark's handler


def attempt(
    subject: str, report: Reporter, work: Callable[[], R], on_error: Callable[[OutboxKitError], R], *, debug: bool
) -> R:
    """Return the result of `work`, or report the error and return `on_error(error)`. Stopped and Ctrl-C are raised."""
    try:
        return work()
    except Stopped:
        raise
    except Exception as error:  # of any type, because the other jobs must run
        if was_interrupted(error):
            raise KeyboardInterrupt from error
        if debug:
            report(debug_traceback(error))
        failure = redacted(error)
        report_error(failure, report, subject)
        return on_error(failure)


def run_jobs(
    jobs: Sequence[MaterializeJob],
    report: Reporter,
    work: Callable[[SparkSession, MaterializeJob], R],
    on_error: Callable[[MaterializeJob, OutboxKitError], R],
    *,
    debug: bool,
    name: str = APPLICATION_NAME,
) -> list[R]:
    """Return the result of `work` for each job; for a job whose `work` raised, the result of `on_error`."""
    report("starting Spark")
    spark = start_spark(name)
    try:
        return [
            attempt(str(job), report, partial(work, spark, job), partial(on_error, job), debug=debug) for job in jobs
        ]
    finally:
        spark.stop()
