"""One after another, in one Spark session: what one table's error does not keep the others from."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import TypeVar

from pyspark.sql import SparkSession

from outbox_spark.command import Tell, explain
from outbox_spark.errors import MaterializeError
from outbox_spark.model import MaterializeJob
from outbox_spark.session import start_session
from outbox_spark.unexpected import explained

R = TypeVar("R")


def for_each(
    jobs: Sequence[MaterializeJob],
    tell: Tell,
    work: Callable[[SparkSession, MaterializeJob], R],
    failed: Callable[[MaterializeJob, MaterializeError], R],
    *,
    debug: bool,
) -> list[R]:
    """The result of `work` for each job, or of `failed` where it raised."""
    tell("starting Spark")
    spark = start_session()
    results = []
    try:
        for job in jobs:
            try:
                results.append(work(spark, job))
            except Exception as error:  # whatever it is, the other tables are still worked on
                if debug:
                    tell(traceback.format_exc())
                known = explained(error)
                explain(known, tell, str(job))
                results.append(failed(job, known))
        return results
    finally:
        spark.stop()
