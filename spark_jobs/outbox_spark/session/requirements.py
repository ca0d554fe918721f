"""Check that an application has the jars, extensions and versions that runs require."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from outbox_events.errors import ConfigurationError
from outbox_spark.jobs.model import DeltaTarget, IcebergTarget, PostgresTarget, Target
from outbox_spark.session import version_check

DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
ICEBERG_EXTENSION = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"

# One class from each required jar.
_TOPIC_CLASSES = (
    "org.apache.spark.sql.kafka010.KafkaSourceProvider",
    "org.apache.spark.sql.avro.AvroDataToCatalyst",
    "io.outboxkit.spark.KeyFilter",
)
_TARGET_CLASSES: Mapping[type[Target], str] = {
    PostgresTarget: "org.postgresql.Driver",
    DeltaTarget: DELTA_EXTENSION,
    IcebergTarget: "org.apache.iceberg.spark.SparkCatalog",
}
ALL_CLASSES = (*_TOPIC_CLASSES, *_TARGET_CLASSES.values())
_EXTENSIONS: Mapping[type[Target], str] = {DeltaTarget: DELTA_EXTENSION, IcebergTarget: ICEBERG_EXTENSION}
_HINT = "see docs/embedding.md, Requirements"


def check_application(spark: SparkSession, target: Target | None = None) -> None:
    """Raise ConfigurationError if the application cannot read topics or cannot write tables of `target`."""
    if not isinstance(spark, SparkSession):
        message = f"{type(spark).__module__}.SparkSession is a session of Spark Connect, which is not supported"
        raise ConfigurationError(message, f"run the program in the driver of the application; {_HINT}")
    version_check.check_pyspark()
    classes = _TOPIC_CLASSES if target is None else (*_TOPIC_CLASSES, _TARGET_CLASSES[type(target)])
    check_jars(spark, classes, f"add the jar of this class to spark.jars before Spark starts; {_HINT}")
    version_check.check_session(spark, classes)
    extension = _EXTENSIONS.get(type(target)) if target is not None else None
    if extension is not None and extension not in (spark.conf.get("spark.sql.extensions", None) or ""):
        message = f"spark.sql.extensions does not contain {extension}"
        raise ConfigurationError(message, f"add the extension before Spark starts; {_HINT}")


def check_jars(spark: SparkSession, class_names: Iterable[str], hint: str) -> None:
    """Raise ConfigurationError when a class is not on the class path."""
    for name in class_names:
        if not has_class(spark, name):
            raise ConfigurationError(f"class {name} is not on Spark's class path", hint)


def has_class(spark: SparkSession, name: str) -> bool:
    """Return whether the driver, which has the same jars as the executors, can load a class."""
    return _can_load(spark.sparkContext._jvm, name)


@lru_cache(maxsize=16)
def _can_load(jvm: Any, name: str) -> bool:  # noqa: ANN401 - py4j's JVMView
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    except Py4JJavaError:
        return False
    return True
