"""Report the progress of a long batch, whose Spark jobs may run for hours."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pyspark.sql import SparkSession

from outbox_events.text import plural
from outbox_spark.jobs.model import MaterializeJob, Reporter
from outbox_spark.session.error_redaction import JVM_ENDED
from outbox_spark.session.stage_metrics import group_of

REPORT_SECONDS = 30.0


@contextmanager
def reporting_tasks(
    spark: SparkSession, job: MaterializeJob, report: Reporter, seconds: float = REPORT_SECONDS
) -> Iterator[None]:
    """Inside `with`, report the numbers of completed tasks of the job's running stages, every `seconds` seconds."""
    ended, started = threading.Event(), time.monotonic()

    def run() -> None:
        while not ended.wait(seconds):
            with suppress(*JVM_ENDED):
                if message := _tasks(spark, job):
                    report(f"{job}: {message}, {time.monotonic() - started:.0f} s so far")

    thread = threading.Thread(target=run, name="outbox-task-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(seconds)


def _tasks(spark: SparkSession, job: MaterializeJob) -> str:
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(group_of(job))]
    ids = {stage for info in jobs if info is not None for stage in info.stageIds}.intersection(
        tracker.getActiveStageIds()
    )
    stages = [info for info in map(tracker.getStageInfo, ids) if info is not None]
    if not stages:
        return ""
    done, total = sum(info.numCompletedTasks for info in stages), sum(info.numTasks for info in stages)
    return f"{done} of {plural(total, 'task')} of the current step"
