"""Refuse lake tables for which a conflict between two drivers that commit at the same time would go undetected."""

from __future__ import annotations

from pyspark.sql import SparkSession

from outbox_common.object_stores import hadoop_warehouse, s3_scheme
from outbox_events.errors import ConfigurationError
from outbox_spark.jobs.model import DeltaTarget, IcebergTarget

_LOG_STORE_CLASS = "spark.delta.logStore.class"
"""Selects the log store for all URL schemes. Delta rejects this setting if one for a single scheme also exists."""
_WITHOUT_DETECTION = ("S3SingleDriverLogStore", "HDFSLogStore", "AzureLogStore", "LocalLogStore", "DelegatingLogStore")
"""Delta's log stores that do not detect conflicts on S3. The last one delegates to another log store by URL scheme."""


def check_delta_target(spark: SparkSession, target: DeltaTarget) -> None:
    """Raise ConfigurationError for a path on S3 unless the log store detects conflicts or there is a single writer."""
    scheme = s3_scheme(target.path)
    if scheme is None or target.single_writer:
        return
    setting = _LOG_STORE_CLASS if spark.conf.get(_LOG_STORE_CLASS, None) else f"spark.delta.logStore.{scheme}.impl"
    log_store = spark.conf.get(setting, None) or ""
    if not log_store or log_store.endswith(_WITHOUT_DETECTION):
        message = f"Delta's log store for {target.path} does not detect conflicts between two drivers"
        hint = f"set {setting} to a log store that detects them, such as io.delta.storage.S3DynamoDBLogStore"
        raise ConfigurationError(message, f"{hint}; {_ALTERNATIVE}")


def check_iceberg_target(target: IcebergTarget) -> None:
    """Raise ConfigurationError for a catalog of type hadoop on S3 unless there is a single writer."""
    warehouse = hadoop_warehouse(target.catalog)
    if s3_scheme(warehouse) is not None and not target.single_writer:
        message = f"an Iceberg catalog of type hadoop at {warehouse} does not detect conflicts between two drivers"
        raise ConfigurationError(message, f"use a catalog of type rest, hive, jdbc or glue; {_ALTERNATIVE}")


_ALTERNATIVE = "or set `single_writer: true` in the target if only one driver at a time writes to its tables"
