"""A long batch reports how many of its tasks are done."""

from __future__ import annotations

import re

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from tests.spark.table_under_test import Target

from outbox_spark.session.stage_metrics import group_of, label_spark_jobs
from outbox_spark.session.task_progress import reporting_tasks


def test_reports_the_tasks_of_a_running_job(postgres_target: Target) -> None:
    """The job would run for hours; the first message cancels it."""
    spark, job, messages = postgres_target.spark, postgres_target.job, list[str]()

    def report(message: str) -> None:
        messages.append(message)
        spark.sparkContext.cancelJobGroup(group_of(job))

    label_spark_jobs(spark, job, "reduce")
    with reporting_tasks(spark, job, report, seconds=0.05), pytest.raises(Py4JJavaError, match="cancelled"):
        spark.range(0, 10**15, 1, 2).selectExpr("sum(hash(id))").collect()
    assert re.fullmatch(rf"{re.escape(str(job))}: 0 of 2 tasks of the current step, \d+ s so far", messages[0])
