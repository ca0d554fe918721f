"""Persist and count rows that are used more than once, and prevent jobs from recomputing them from the topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from outbox_spark.session.expressions import cached_expressions
from outbox_spark.session.run_session import local_properties_restored

PERSISTED_ONLY = "outbox.persisted.only"
"""Local property of Spark jobs that must not read topics (PersistedRows.PROPERTY in outbox-spark.jar)."""

_COUNT_NAMES = ("decoded_rows", "decoded_quarantined", "decoded_tombstones")


@dataclass(frozen=True)
class DecodedCounts:
    """Numbers of rows of decode(): all rows, quarantined rows, and tombstones that are not quarantined."""

    rows: int
    quarantined: int
    tombstones: int

    @property
    def live(self) -> int:
        """Number of rows that are neither quarantined nor tombstones."""
        return self.rows - self.quarantined - self.tombstones


def persist(stack: ExitStack, frame: DataFrame) -> DataFrame:
    """Mark `frame` as persisted until `stack` is closed, and return it. The first action on `frame` persists its rows.

    The rows are stored on disk (usually in the page cache), because a batch with millions of keys would fill the heap.
    """
    frame = frame.persist(_storage_level(frame.sparkSession))
    stack.callback(frame.unpersist)
    return frame


def checkpoint(stack: ExitStack, frame: DataFrame) -> DataFrame:
    """Return a frame whose first action stores its rows on disk until `stack` is closed.

    Unlike a frame of `persist`, it is not evaluated again after a write to one of the tables that it was read from.
    """
    frame = frame.localCheckpoint(eager=False, storageLevel=_storage_level(frame.sparkSession))
    java_frame: Any = frame._jdf
    stack.callback(java_frame.queryExecution().logical().rdd().unpersist, False)
    return frame


def _storage_level(spark: SparkSession) -> StorageLevel:
    """Return the level of persisted rows. On a cluster, two executors store each row, so that one of them can fail."""
    context: Any = spark.sparkContext._jsc
    return StorageLevel.DISK_ONLY if context.isLocal() else StorageLevel.DISK_ONLY_2


def forbid_topic_reads(stack: ExitStack, spark: SparkSession) -> None:
    """Make jobs of this thread fail if they read a topic outside `allow_topic_reads`, until `stack` is closed.

    If both executors with the same persisted rows are lost, Spark would read their records from the topic again.
    Meanwhile, compaction may have removed a record, and the record that superseded it may be after the end of the
    batch. Requires outbox-spark.jar on the class path.
    """
    stack.enter_context(_with_persisted_only(spark, "true"))


def allow_topic_reads(spark: SparkSession) -> AbstractContextManager[None]:
    """Return a context manager in which jobs of this thread may read topics despite `forbid_topic_reads`."""
    return _with_persisted_only(spark, None)


@contextmanager
def _with_persisted_only(spark: SparkSession, value: str | None) -> Iterator[None]:
    """Set the local property PERSISTED_ONLY inside `with` (None removes it), then restore its previous value."""
    with local_properties_restored(spark.sparkContext, [PERSISTED_ONLY]):
        spark.sparkContext.setLocalProperty(PERSISTED_ONLY, value)  # type: ignore[arg-type]  # None removes it
        yield


def count_rows(rows: DataFrame) -> DecodedCounts:
    """Count rows of decode(). This action evaluates all rows, so it persists a frame that `persist` returned."""
    return counts_from(rows.agg(*count_expressions()).collect()[0])


@cached_expressions
def count_expressions() -> list[Column]:
    """Return the aggregate expressions over rows of decode() whose values `counts_from` uses."""
    is_readable = F.col("__outbox_reason").isNull()
    counts = [F.count(F.lit(1)), F.count("__outbox_reason"), F.count_if(is_readable & F.col("__outbox_deleted"))]
    return [count.alias(name) for count, name in zip(counts, _COUNT_NAMES, strict=True)]


def counts_from(values: Row | Mapping[str, Any]) -> DecodedCounts:
    """Return the counts in the values of `count_expressions`."""
    return DecodedCounts(*(values[name] for name in _COUNT_NAMES))
