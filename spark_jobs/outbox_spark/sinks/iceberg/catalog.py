"""Iceberg catalogs in a Spark session."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pyspark.sql import SparkSession

from outbox_spark.jobs.model import IcebergTarget
from outbox_spark.sinks.lake.merge_sql import quoted


def use_catalog(spark: SparkSession, target: IcebergTarget) -> str:
    """Configure the catalog of a target in this session, and return its SQL name."""
    settings = sorted(target.catalog.items())
    name = "outbox_" + hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:12]
    prefix = f"spark.sql.catalog.{name}"
    spark.conf.set(prefix, "org.apache.iceberg.spark.SparkCatalog")
    # Spark logs session settings in the event log, but redacts only settings that are also in the application's
    # SparkConf. So set them there too, or credentials of the catalog would be logged.
    application: Any = spark._jsc.sc().conf()
    for key, value in settings:
        application.set(f"{prefix}.{key}", value)
        spark.conf.set(f"{prefix}.{key}", value)
    # A cached table does not show the commits of other jobs.
    spark.conf.set(f"{prefix}.cache-enabled", "false")
    return name


def table_name(spark: SparkSession, target: IcebergTarget, table: str) -> str:
    return ".".join(quoted(name) for name in [use_catalog(spark, target), *target.namespace.split("."), table])
