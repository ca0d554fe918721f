"""Looks up classes on the driver's class path. The executors have the same jars."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession


def has_class(spark: SparkSession, name: str) -> bool:
    """Return whether the driver's JVM can load the class `name`; False if PySpark has no JVM."""
    jvm = spark.sparkContext._jvm
    return jvm is not None and _can_load(jvm, name)


@lru_cache(maxsize=16)
def _can_load(jvm: Any, name: str) -> bool:  # noqa: ANN401 - py4j's JVMView
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    except Py4JJavaError:
        return False
    return True
