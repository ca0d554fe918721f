"""Runs jobs one after another in one Spark session. A failure of one job does not affect the others."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence
from functools import partial
from types import FrameType
from typing import TypeVar

from pyspark.sql import SparkSession

from outbox_spark.commands.exit_codes import (
    filtered_py4j_logs,
    print_message,
    report_error,
    restore_interrupt_handler,
    was_interrupted,
)
from outbox_spark.commands.interval import Stopped
from outbox_spark.commands.signals import recorded_signals
from outbox_spark.errors import OutboxError
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
    if not _ctrl_c_raises():
        return _start(name)
    with recorded_signals() as was_received:
        signal.signal(signal.SIGINT, _defer_first_interrupt)
        try:
            with filtered_py4j_logs(lambda record: not (record.exc_info and was_received(signal.SIGINT))):
                spark = _start(name)
        except Exception as error:
            # Spark's handler calls Java, also while another call is in progress, which can end with any error.
            if was_received(signal.SIGINT):
                raise KeyboardInterrupt from error
            raise
        if was_received(signal.SIGINT):
            spark.stop()
            raise KeyboardInterrupt
    return spark


def _start(name: str) -> SparkSession:
    try:
        return start_session(name)
    finally:
        restore_interrupt_handler()  # start_session() installed Spark's handler


def _ctrl_c_raises() -> bool:
    is_main_thread = threading.current_thread() is threading.main_thread()
    return is_main_thread and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _defer_first_interrupt(signum: int, _frame: FrameType | None) -> None:
    signal.signal(signum, signal.default_int_handler)
    print_message("interrupted: waiting until Spark has started; interrupt again to end now")


def attempt(
    subject: str,
    report: Reporter,
    work: Callable[[], R],
    on_error: Callable[[OutboxError], R],
    *,
    debug: bool,
    raised: tuple[type[Exception], ...] = (Stopped,),
) -> R:
    """Return the result of `work`, or report the error and return `on_error(error)`. `raised` and Ctrl-C are raised."""
    try:
        return work()
    except raised:
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
    on_error: Callable[[MaterializeJob, OutboxError], R],
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
