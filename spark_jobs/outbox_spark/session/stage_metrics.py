"""Job descriptions for Spark's UI, and the figures of the stages that have run.

The figures come from Spark's status store, the source of its UI and REST API. The store exists even if the
UI is disabled, and requires no callback from the JVM.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from outbox_spark.jobs.model import MaterializeJob

OBSERVATION = "outbox_materialize"
"""Name of the observed metrics with the records and keys of a batch (`observedMetrics` of query listeners)."""
GROUP_PREFIX = "outbox-materialize "

_LISTENER_MILLIS = 5_000
"""Time limit for Spark's listeners to process the events of finished stages, which usually takes milliseconds."""


FIGURES = {
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
"""Methods of org.apache.spark.status.api.v1.StageData by figure."""


def label_spark_jobs(spark: SparkSession, job: MaterializeJob, step: str) -> None:
    """Set table and step as group and description of the next Spark jobs, for UI, history server and listeners."""
    # interruptOnCancel is also the behavior of queries without a group: if one task fails, the others are cancelled.
    spark.sparkContext.setJobGroup(f"{GROUP_PREFIX}{job}", f"{job}: {step}", interruptOnCancel=True)


class StageMetrics:
    """Figures of the stages of a session since the last call."""

    def __init__(self, spark: SparkSession) -> None:
        context: Any = spark.sparkContext._jsc
        self._spark_context = context.sc()
        self._gateway: Any = spark.sparkContext._gateway
        self._last_stage = -1
        self.since_last()

    def since_last(self) -> dict[str, int]:
        """Return the figures of new stages. Batches run one at a time, so all new stages belong to the last batch.

        Figures are sums; `peak_execution_memory_bytes` is the sum over the tasks of the largest stage.
        """
        self._spark_context.listenerBus().waitUntilEmpty(_LISTENER_MILLIS)
        stages = self._stages()
        new_stages = []
        for index in range(stages.size()):  # newest first
            stage = stages.apply(index)
            if stage.stageId() <= self._last_stage:
                break
            new_stages.append(stage)
        self._last_stage = max([self._last_stage, *(stage.stageId() for stage in new_stages)])
        values = {name: [getattr(stage, method)() for stage in new_stages] for name, method in FIGURES.items()}
        peak = max(values["peak_execution_memory_bytes"], default=0)
        return {**{name: sum(figures) for name, figures in values.items()}, "peak_execution_memory_bytes": peak}

    def _stages(self) -> Any:  # noqa: ANN401 - a Scala Seq of StageData
        no_filter = self._gateway.jvm.java.util.ArrayList()
        quantiles = self._gateway.new_array(self._gateway.jvm.double, 0)
        return self._spark_context.statusStore().stageList(no_filter, False, False, quantiles, no_filter)
