"""Driver with task retries, as on a cluster. One task fails once, after it has processed most of its rows.

The arguments are the target as JSON and the name of the table. Prints the result of COPY as JSON.
"""

from __future__ import annotations

import json
import sys

from pyspark import TaskContext
from pyspark.sql import functions as F  # noqa: N812
from tests.spark.staged_rows import staged_row

from outbox_spark.jobs.model import PostgresTarget
from outbox_spark.session.spark_session import start_session
from outbox_spark.session.stage_metrics import OBSERVATION
from outbox_spark.sinks.postgres.staging import copy_plan, copy_rows

ROWS, FAILING = 60_000, 45_000


def fail_once(number: int) -> str:
    """Return the number as text. For FAILING, raise an error in the first attempt of the task."""
    task = TaskContext.get()
    if number == FAILING and task is not None and task.attemptNumber() == 0:
        message = "simulated failure of the first attempt"
        raise RuntimeError(message)
    return str(number)


def main(target: str, table: str) -> None:
    spark = start_session("outbox-retries")
    rows = spark.range(0, ROWS, 1, 2).select(*staged_row(F.udf(fail_once)(F.col("id"))))
    observed = rows.observe(OBSERVATION, F.count(F.lit(1)).alias("rows"), F.sum("_offset").alias("offsets"))
    postgres = PostgresTarget(**json.loads(target))
    attempts, sums = copy_rows(copy_plan(observed, [], postgres), postgres, table)
    print(json.dumps({"attempts": attempts, "sums": sums}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
