"""Classes on the driver's class path. Executors have the same jars."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession


def has_class(spark: SparkSession, name: str) -> bool:
    """Whether the driver can load a class. False without a JVM in this process, as with Spark Connect."""
    jvm = spark.sparkContext._jvm
    return jvm is not None and _loads(jvm, name)


@lru_cache(maxsize=16)
def _loads(jvm: Any, name: str) -> bool:  # noqa: ANN401 - of py4j
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    except Py4JJavaError:
        return False
    return True
