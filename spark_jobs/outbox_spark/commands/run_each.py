"""Runs jobs one after another in one Spark session. A failure of one job does not affect the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from pyspark.sql import SparkSession

from outbox_spark.commands.exit_codes import report_error, restore_interrupt_handler, was_interrupted
from outbox_spark.commands.interval import Stopped
from outbox_spark.errors import OutboxKitError
from outbox_spark.jobs.model import MaterializeJob, Reporter
from outbox_spark.session.error_redaction import debug_traceback, redacted
from outbox_spark.session.spark_session import start_session

APPLICATION_NAME = "outbox-materialize"
R = TypeVar("R")


def start_spark(name: str = APPLICATION_NAME) -> SparkSession:
    """Start Spark for a command. Afterwards Ctrl-C raises KeyboardInterrupt."""
    spark = start_session(name)
    restore_interrupt_handler()  # start_session() installed Spark's handler
    return spark


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
