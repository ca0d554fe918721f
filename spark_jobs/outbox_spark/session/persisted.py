"""Rows that are read more than once: kept, counted once, and never taken from the topic a second time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from outbox_spark.session.expression_cache import reused

KEPT_ONLY = "outbox.kept.only"
"""KeptRows.PROPERTY of our jar: jobs that have it may not read topics."""

_SUMS = ("decoded_rows", "decoded_quarantined", "decoded_tombstones")


@dataclass(frozen=True)
class Counts:
    """Of decoded rows."""

    rows: int
    quarantined: int
    tombstones: int
    """Readable ones."""


def kept(stack: ExitStack, frame: DataFrame) -> DataFrame:
    """`frame`, held from its first use until `stack` is left.

    On disk, which mostly means in the system's cache of it: a batch whose keys are all different would fill the heap.
    """
    frame = frame.persist(StorageLevel.DISK_ONLY)
    stack.callback(frame.unpersist)
    return frame


def keep_to_kept(stack: ExitStack, spark: SparkSession) -> None:
    """Until `stack` is left, jobs of this thread fail rather than read a topic again, outside of `reading`.

    An executor that dies takes kept rows along. Spark would make them again, from a log that may have been compacted
    since: of two records of a key the one that this batch counted can be gone, and the one that replaced it be beyond
    the batch. Needs our jar on the class path.
    """
    stack.enter_context(_kept_only(spark, "true"))


def reading(spark: SparkSession) -> AbstractContextManager[None]:
    """For the action that fills what is kept with what a topic holds."""
    return _kept_only(spark, None)


@contextmanager
def _kept_only(spark: SparkSession, value: str | None) -> Iterator[None]:
    """KEPT_ONLY with this value, None for without; afterwards as it was."""
    context = spark.sparkContext
    before = context.getLocalProperty(KEPT_ONLY)
    context.setLocalProperty(KEPT_ONLY, value)  # type: ignore[arg-type]  # None removes it
    try:
        yield
    finally:
        # Of a Spark that is gone there is nothing to restore, and what ended it is what must be told.
        with suppress(Py4JError):
            context.setLocalProperty(KEPT_ONLY, before)  # type: ignore[arg-type]  # as it was: str or None


def counted(rows: DataFrame) -> Counts:
    """Count rows as decode() yields them. Reads all of them: the action that fills a frame that is kept."""
    return counts_in(rows.agg(*counts_of_rows()).collect()[0])


@reused
def counts_of_rows() -> list[Column]:
    """Sums over decoded rows, for counts_in."""
    readable = F.col("_reason").isNull()
    sums = [F.count(F.lit(1)), F.count("_reason"), F.count_if(readable & F.col("_deleted"))]
    return [each.alias(name) for each, name in zip(sums, _SUMS, strict=True)]


def counts_in(row: Row | Mapping[str, Any]) -> Counts:
    """The counts among sums with counts_of_rows."""
    return Counts(*(row[name] for name in _SUMS))
