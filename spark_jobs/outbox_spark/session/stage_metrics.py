"""Label Spark jobs with groups and descriptions, and collect metrics of the stages that have run.

The metrics come from Spark's status store, which Spark's UI and REST API also read. The store exists even if the UI is
disabled, and reading it does not require a callback from the JVM.
"""

from __future__ import annotations

from itertools import takewhile
from typing import Any

from pyspark.sql import SparkSession

from outbox_spark.jobs.model import MaterializeJob

OBSERVATION = "outbox_materialize"
"""Name under which query listeners observe the numbers of records and keys of a batch (`observedMetrics`)."""
JOB_GROUP_PREFIX = "outbox-materialize "

_LISTENER_TIMEOUT_MILLIS = 5_000
"""Time limit for Spark's listeners to process the events of finished stages, which usually takes milliseconds."""


METRIC_METHODS = {
    "tasks": "numCompleteTasks",
    "failed_tasks": "numFailedTasks",
    "executor_run_ms": "executorRunTime",
    "gc_ms": "jvmGcTime",
    "shuffle_read_bytes": "shuffleReadBytes",
    "shuffle_write_bytes": "shuffleWriteBytes",
    "memory_spilled_bytes": "memoryBytesSpilled",
    "disk_spilled_bytes": "diskBytesSpilled",
    "peak_execution_memory_bytes": "peakExecutionMemory",
}
"""For each metric, the method of org.apache.spark.status.api.v1.StageData that returns it."""


def label_spark_jobs(spark: SparkSession, job: MaterializeJob, step: str) -> None:
    """Set the group (the job) and the description (the job and the step) of the next Spark jobs of this thread."""
    # interruptOnCancel interrupts the other tasks of a failed job, as Spark SQL does if there is no job group.
    spark.sparkContext.setJobGroup(group_of(job), f"{job}: {step}", interruptOnCancel=True)


def group_of(job: MaterializeJob) -> str:
    """Return the group of the Spark jobs of a run."""
    return f"{JOB_GROUP_PREFIX}{job}"


class StageMetrics:
    """Metrics of the stages of a job group that ran since the previous call of `since_last` for this group."""

    def __init__(self, spark: SparkSession) -> None:
        context: Any = spark.sparkContext._jsc
        self._spark_context = context.sc()
        self._tracker = spark.sparkContext.statusTracker()
        self._gateway: Any = spark.sparkContext._gateway
        self._first_stage = self._newest_stage()
        self._last_stages: dict[str, int] = {}

    def since_last(self, group: str) -> dict[str, int]:
        """Return the sums over the group's stages since the previous call, which was made after the previous batch.

        `peak_execution_memory_bytes` is the maximum over the stages. The value of a stage is the sum over its tasks.
        """
        newest = self._newest_stage()
        previous, self._last_stages[group] = self._last_stages.get(group, self._first_stage), newest
        ids = self._stage_ids(group)
        stages = [stage for stage in self._stages_after(previous) if stage.stageId() in ids]
        values = {name: [getattr(stage, method)() for stage in stages] for name, method in METRIC_METHODS.items()}
        peak = max(values["peak_execution_memory_bytes"], default=0)
        return {**{name: sum(numbers) for name, numbers in values.items()}, "peak_execution_memory_bytes": peak}

    def _newest_stage(self) -> int:
        """Wait until the events of finished stages have been processed. Return the newest stage's id; -1 if none."""
        self._spark_context.listenerBus().waitUntilEmpty(_LISTENER_TIMEOUT_MILLIS)
        stages = self._stages()
        return int(stages.apply(0).stageId()) if stages.size() else -1

    def _stages_after(self, last_stage: int) -> list[Any]:
        stages = self._stages()  # the newest stage is first
        all_stages = (stages.apply(index) for index in range(stages.size()))
        return list(takewhile(lambda stage: stage.stageId() > last_stage, all_stages))

    def _stage_ids(self, group: str) -> set[int]:
        jobs = [self._tracker.getJobInfo(number) for number in self._tracker.getJobIdsForGroup(group)]
        return {stage for job in jobs if job is not None for stage in job.stageIds}

    def _stages(self) -> Any:  # noqa: ANN401 - Scala's Seq[StageData]
        no_filter = self._gateway.jvm.java.util.ArrayList()
        no_quantiles = self._gateway.new_array(self._gateway.jvm.double, 0)
        return self._spark_context.statusStore().stageList(no_filter, False, False, no_quantiles, no_filter)
