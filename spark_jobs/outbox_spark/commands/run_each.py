"""Runs jobs one after another in one Spark session. A failure of one job does not affect the others."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from pyspark.sql import SparkSession

from outbox_spark.commands.exit_codes import report_error, restore_interrupt_handler, was_interrupted
from outbox_spark.commands.interval import Stopped
from outbox_spark.errors import OutboxKitError
from outbox_spark.jobs.model import MaterializeJob, Reporter
from outbox_spark.session.error_redaction import redacted
from outbox_spark.session.spark_session import start_session

APPLICATION_NAME = "outbox-materialize"
R = TypeVar("R")


def start(name: str = APPLICATION_NAME) -> SparkSession:
    """Start Spark for a command; Ctrl-C raises KeyboardInterrupt from then on."""
    spark = start_session(name)
    restore_interrupt_handler()  # Spark has installed its handler
    return spark


def attempt(
    subject: str, report: Reporter, work: Callable[[], R], on_error: Callable[[OutboxKitError], R], *, debug: bool
) -> R:
    """Return the result of `work`, or report its error and return `on_error(error)`. Raises Stopped and Ctrl-C."""
    try:
        return work()
    except Stopped:
        raise
    except Exception as error:  # of any type: the other jobs must still run
        if was_interrupted(error):
            raise KeyboardInterrupt from error
        if debug:
            report(traceback.format_exc())
        failure = redacted(error)
        report_error(failure, report, subject)
        return on_error(failure)


def for_each(
    jobs: Sequence[MaterializeJob],
    report: Reporter,
    work: Callable[[SparkSession, MaterializeJob], R],
    on_error: Callable[[MaterializeJob, OutboxKitError], R],
    *,
    debug: bool,
    name: str = APPLICATION_NAME,
) -> list[R]:
    """Return the result of `work` for each job, or of `on_error` if it raised."""
    report("starting Spark")
    spark = start(name)
    try:
        return [
            attempt(str(job), report, partial(work, spark, job), partial(on_error, job), debug=debug) for job in jobs
        ]
    finally:
        spark.stop()
