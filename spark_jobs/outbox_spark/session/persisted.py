"""Rows that are read more than once: persisted, counted once, and never read from the topic a second time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from outbox_spark.session.expressions import cached_expressions

PERSISTED_ONLY = "outbox.persisted.only"
"""Local property of Spark (PersistedRows.PROPERTY in outbox-spark.jar): jobs that have it must not read topics."""

_COUNTS = ("decoded_rows", "decoded_quarantined", "decoded_tombstones")


@dataclass(frozen=True)
class DecodedCounts:
    """Numbers of decoded rows."""

    rows: int
    quarantined: int
    tombstones: int
    """Readable tombstones."""


def persist(stack: ExitStack, frame: DataFrame) -> DataFrame:
    """Return `frame`, persisted on its first use until `stack` is closed.

    It is persisted on disk (usually in the page cache): a batch whose keys are all different would fill the heap.
    """
    frame = frame.persist(StorageLevel.DISK_ONLY)
    stack.callback(frame.unpersist)
    return frame


def forbid_topic_reads(stack: ExitStack, spark: SparkSession) -> None:
    """Make jobs of this thread fail if they read a topic outside `allow_topic_reads`, until `stack` is closed.

    If an executor is lost, its persisted rows are lost too. Spark would recompute them from a log that may have been
    compacted since: the counted record may have been removed, and the superseding record may be after the batch.
    Requires outbox-spark.jar on the class path.
    """
    stack.enter_context(_persisted_only(spark, "true"))


def allow_topic_reads(spark: SparkSession) -> AbstractContextManager[None]:
    """Allow topic reads inside `with`, for the action that persists the records."""
    return _persisted_only(spark, None)


@contextmanager
def _persisted_only(spark: SparkSession, value: str | None) -> Iterator[None]:
    """Set PERSISTED_ONLY (None removes it), and restore it afterwards."""
    context = spark.sparkContext
    previous = context.getLocalProperty(PERSISTED_ONLY)
    context.setLocalProperty(PERSISTED_ONLY, value)  # type: ignore[arg-type]  # None removes it
    try:
        yield
    finally:
        # If the JVM has ended, the error that ended it must be reported instead of this one.
        with suppress(Py4JError):
            context.setLocalProperty(PERSISTED_ONLY, previous)  # type: ignore[arg-type]  # str or None


def count_rows(rows: DataFrame) -> DecodedCounts:
    """Count rows of decode(). Reads all rows, so it is the action that persists a frame."""
    return counts_from(rows.agg(*count_expressions()).collect()[0])


@cached_expressions
def count_expressions() -> list[Column]:
    """Return the aggregates over decoded rows that counts_from reads."""
    readable = F.col("_reason").isNull()
    counts = [F.count(F.lit(1)), F.count("_reason"), F.count_if(readable & F.col("_deleted"))]
    return [count.alias(name) for count, name in zip(counts, _COUNTS, strict=True)]


def counts_from(row: Row | Mapping[str, Any]) -> DecodedCounts:
    """Return the counts from the values of count_expressions."""
    return DecodedCounts(*(row[name] for name in _COUNTS))
