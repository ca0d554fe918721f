"""What Spark itself knows of a batch: names for its own tools, and the figures of the stages that just ran.

The figures are read from Spark's status store, which is what its UI and REST API show: it is there without a UI,
and nothing has to be called back from the JVM.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql import SparkSession

from outbox_spark.jobs.model import MaterializeJob

OBSERVATION = "outbox_materialize"
"""Name under which listeners of queries get a batch's records and keys (`observedMetrics`)."""
GROUP_PREFIX = "outbox-materialize "

_LISTENER_MILLIS = 5_000
"""How long to wait until Spark's own listeners have seen what ran. They are milliseconds behind."""


@dataclass(frozen=True)
class Figures:
    """Sums over the stages that ran; `peak_execution_memory_bytes` is that of the greatest stage, all its tasks."""

    tasks: int = 0
    failed_tasks: int = 0
    executor_run_ms: int = 0
    gc_ms: int = 0
    shuffle_read_bytes: int = 0
    shuffle_write_bytes: int = 0
    memory_spilled_bytes: int = 0
    disk_spilled_bytes: int = 0
    peak_execution_memory_bytes: int = 0

    def to_dict(self) -> dict[str, int]:
        """By name."""
        return asdict(self)


def label(spark: SparkSession, job: MaterializeJob, step: str) -> None:
    """Name what runs next: UI, history server and listeners show the table as job group, the step as description."""
    # Interruptible, as queries are without a group: where one task fails the others are not wanted any more.
    spark.sparkContext.setJobGroup(f"{GROUP_PREFIX}{job}", f"{job}: {step}", interruptOnCancel=True)


class SparkWork:
    """Figures of what ran in a session since the last look."""

    def __init__(self, spark: SparkSession) -> None:
        context: Any = spark.sparkContext._jsc
        self._spark_context = context.sc()
        self._gateway: Any = spark.sparkContext._gateway
        self._last_stage = -1
        self.since_last()

    def since_last(self) -> Figures:
        """Stages that are new since the last call. One batch at a time runs, so that all of them are its own."""
        self._spark_context.listenerBus().waitUntilEmpty(_LISTENER_MILLIS)
        found = []
        stages = self._stages()
        last = self._last_stage
        for index in range(stages.size()):  # newest first
            stage = stages.apply(index)
            number = stage.stageId()
            if number <= self._last_stage:
                break
            last = max(last, number)
            found.append(_figures(stage))
        self._last_stage = last
        return _sum(found)

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
    rows = [stage.to_dict() for stage in stages]
    sums = {name: sum(row[name] for row in rows) for name in Figures().to_dict()}
    peak = max((stage.peak_execution_memory_bytes for stage in stages), default=0)
    return Figures(**{**sums, "peak_execution_memory_bytes": peak})
