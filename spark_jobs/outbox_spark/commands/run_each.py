"""One after another, in one Spark session: what one table's error does not keep the others from."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from pyspark.sql import SparkSession

from outbox_spark.commands.interval import Stopped
from outbox_spark.commands.options import explain, plain_interrupts, was_interrupted
from outbox_spark.errors import MaterializeError
from outbox_spark.jobs.model import MaterializeJob, Progress
from outbox_spark.session.error_redaction import explained
from outbox_spark.session.spark_session import start_session

APPLICATION_NAME = "outbox-materialize"
R = TypeVar("R")


def start(name: str = APPLICATION_NAME) -> SparkSession:
    """Spark for a command, which Ctrl-C ends in one way, whatever it was doing."""
    spark = start_session(name)
    # After Spark has started, because it sets a handler of its own.
    plain_interrupts()
    return spark


def attempt(
    where: str, tell: Progress, work: Callable[[], R], failed: Callable[[MaterializeError], R], *, debug: bool
) -> R:
    """The result of `work`, or of `failed` where it raised, which is told. Raises Stopped and Ctrl-C."""
    try:
        return work()
    except Stopped:  # no error: somebody asked for it
        raise
    except Exception as error:  # whatever it is, the other tables are still worked on
        if was_interrupted(error):
            raise KeyboardInterrupt from error
        if debug:
            tell(traceback.format_exc())
        known = explained(error)
        explain(known, tell, where)
        return failed(known)


def for_each(
    jobs: Sequence[MaterializeJob],
    tell: Progress,
    work: Callable[[SparkSession, MaterializeJob], R],
    failed: Callable[[MaterializeJob, MaterializeError], R],
    *,
    debug: bool,
    name: str = APPLICATION_NAME,
) -> list[R]:
    """The result of `work` for each job, or of `failed` where it raised."""
    tell("starting Spark")
    spark = start(name)
    try:
        return [attempt(str(job), tell, partial(work, spark, job), partial(failed, job), debug=debug) for job in jobs]
    finally:
        spark.stop()
