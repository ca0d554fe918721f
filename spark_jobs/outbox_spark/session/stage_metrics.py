"""Job descriptions for Spark's UI, and the figures of the stages that have run.

The figures come from Spark's status store, the source of its UI and REST API. It exists without a UI, and needs no
callback from the JVM.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from pyspark.sql import SparkSession

from outbox_spark.jobs.model import MaterializeJob

OBSERVATION = "outbox_materialize"
"""Name of the observed metrics with a batch's records and keys (`observedMetrics` of query listeners)."""
GROUP_PREFIX = "outbox-materialize "

_LISTENER_MILLIS = 5_000
"""Time limit for Spark's listeners to process the events of finished stages; they are milliseconds behind."""


@dataclass(frozen=True)
class Figures:
    """Sums over stages; `peak_execution_memory_bytes` is the sum over the tasks of the largest stage."""

    tasks: int = 0
    failed_tasks: int = 0
    executor_run_ms: int = 0
    gc_ms: int = 0
    shuffle_read_bytes: int = 0
    shuffle_write_bytes: int = 0
    memory_spilled_bytes: int = 0
    disk_spilled_bytes: int = 0
    peak_execution_memory_bytes: int = 0


def label(spark: SparkSession, job: MaterializeJob, step: str) -> None:
    """Set table and step as job group and description of the next jobs, for UI, history server and listeners."""
    # Interruptible, as queries without a group are: if one task fails, the others are cancelled.
    spark.sparkContext.setJobGroup(f"{GROUP_PREFIX}{job}", f"{job}: {step}", interruptOnCancel=True)


class StageMetrics:
    """Figures of the stages of a session since the last call."""

    def __init__(self, spark: SparkSession) -> None:
        context: Any = spark.sparkContext._jsc
        self._spark_context = context.sc()
        self._gateway: Any = spark.sparkContext._gateway
        self._last_stage = -1
        self.since_last()

    def since_last(self) -> Figures:
        """Return the figures of new stages. Batches run one at a time, so all stages belong to the last one."""
        self._spark_context.listenerBus().waitUntilEmpty(_LISTENER_MILLIS)
        figures = []
        stages = self._stages()
        last = self._last_stage
        for index in range(stages.size()):  # newest first
            stage = stages.apply(index)
            number = stage.stageId()
            if number <= self._last_stage:
                break
            last = max(last, number)
            figures.append(_figures(stage))
        self._last_stage = last
        return _sum(figures)

    def _stages(self) -> Any:  # noqa: ANN401 - a Scala Seq of StageData
        none = self._gateway.jvm.java.util.ArrayList()
        quantiles = self._gateway.new_array(self._gateway.jvm.double, 0)
        return self._spark_context.statusStore().stageList(none, False, False, quantiles, none)


def _figures(stage: Any) -> Figures:  # noqa: ANN401 - org.apache.spark.status.api.v1.StageData
    return Figures(
        tasks=stage.numCompleteTasks(),
        failed_tasks=stage.numFailedTasks(),
        executor_run_ms=stage.executorRunTime(),
        gc_ms=stage.jvmGcTime(),
        shuffle_read_bytes=stage.shuffleReadBytes(),
        shuffle_write_bytes=stage.shuffleWriteBytes(),
        memory_spilled_bytes=stage.memoryBytesSpilled(),
        disk_spilled_bytes=stage.diskBytesSpilled(),
        peak_execution_memory_bytes=stage.peakExecutionMemory(),
    )


def _sum(stages: list[Figures]) -> Figures:
    sums = {entry.name: sum(getattr(stage, entry.name) for stage in stages) for entry in fields(Figures)}
    peak = max((stage.peak_execution_memory_bytes for stage in stages), default=0)
    return Figures(**{**sums, "peak_execution_memory_bytes": peak})
