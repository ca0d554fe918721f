"""Rows that are read more than once: kept, and counted once."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from outbox_spark.reused import reused


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


def counted(rows: DataFrame) -> Counts:
    """Count rows as decode() yields them. Reads all of them: the action that fills a frame that is kept."""
    return Counts(*rows.agg(*_counts()).collect()[0])


@reused
def _counts() -> list[Column]:
    readable = F.col("_reason").isNull()
    return [F.count(F.lit(1)), F.count("_reason"), F.count_if(readable & F.col("_deleted"))]
