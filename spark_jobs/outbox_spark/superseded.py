"""Drops superseded records before they are sorted and shuffled, by a class in a jar of ours (spark_jobs/java).

A topic with ten records a key leaves a tenth. It is no reduction by itself and changes no result: the aggregation after
it decides. So it may be left out, and is where the jar is not on the class path.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession

CLASS = "io.outboxkit.spark.NewestRows"
LIMIT_BYTES = 64 << 20
"""Rows that one task keeps before it hands them on. Beside Spark's own memory, so it counts in the heap."""

COUNTS = ["_records", "_kinds"]
"""The last two columns of what is given: how many records a row stands for (long), bits that are joined (int)."""


def without_superseded(records: DataFrame, limit: int | None = None) -> DataFrame:
    """`records` with fewer rows. Columns: hash, key, sequence, offset, any others, and COUNTS, which are added up."""
    if not is_available(records.sparkSession):
        return records
    jvm: Any = records.sparkSession.sparkContext._jvm
    return DataFrame(jvm.io.outboxkit.spark.NewestRows.of(records._jdf, limit or LIMIT_BYTES), records.sparkSession)


def is_available(spark: SparkSession) -> bool:
    """Whether the driver has the class; executors are given the same jars."""
    jvm = spark.sparkContext._jvm
    return jvm is not None and _has_class(jvm, CLASS)


@lru_cache(maxsize=2)
def _has_class(jvm: Any, name: str) -> bool:  # noqa: ANN401 - of py4j
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    except Py4JJavaError:
        return False
    return True
