"""Configure Iceberg catalogs in a Spark session."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pyspark.sql import SparkSession

from outbox_spark.jobs.model import IcebergTarget
from outbox_spark.session.run_session import CATALOG_PREFIX
from outbox_spark.sinks.lake.merge_sql import quoted


def configure_catalog(spark: SparkSession, target: IcebergTarget) -> str:
    """Configure the catalog of a target in the Spark session, and return the name of the catalog."""
    settings = sorted(target.catalog.items())
    name = CATALOG_PREFIX + hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:12]
    prefix = f"spark.sql.catalog.{name}"
    spark.conf.set(prefix, "org.apache.iceberg.spark.SparkCatalog")
    # Spark writes session settings to its event log, and redacts only those that are also in the SparkConf of the
    # application. Without these settings in the SparkConf, the event log would contain the catalog's credentials.
    spark_conf: Any = spark._jsc.sc().conf()
    for key, value in settings:
        spark_conf.set(f"{prefix}.{key}", value)
        spark.conf.set(f"{prefix}.{key}", value)
    # A cached table would not contain later commits of other jobs.
    spark.conf.set(f"{prefix}.cache-enabled", "false")
    return name


def table_name(spark: SparkSession, target: IcebergTarget, table: str) -> str:
    """Configure the catalog, and return the quoted name of a table for SQL."""
    return name_in_catalog(configure_catalog(spark, target), target, table)


def name_in_catalog(catalog: str, target: IcebergTarget, table: str) -> str:
    """Return the quoted name of a table for SQL. `catalog` is the name that `configure_catalog` returns."""
    return ".".join(quoted(name) for name in [catalog, *target.namespace.split("."), table])
