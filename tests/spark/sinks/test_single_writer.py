"""Targets on S3, where two drivers can commit at the same time without detecting the conflict."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from tests.spark.table_under_test import job_for

from outbox_events.errors import ConfigurationError
from outbox_spark.jobs.model import DeltaTarget, IcebergTarget
from outbox_spark.sinks import open_table

HADOOP = {"type": "Hadoop", "warehouse": "s3a://lake/tables"}
HADOOP_CLASS = {"catalog-impl": "org.apache.iceberg.hadoop.HadoopCatalog", "warehouse": "s3a://lake/tables"}


@pytest.mark.parametrize(
    "target",
    [DeltaTarget("S3A://lake/tables"), IcebergTarget("n", HADOOP), IcebergTarget("n", HADOOP_CLASS)],
)
def test_refuses_a_target_without_conflict_detection(spark: SparkSession, target: DeltaTarget | IcebergTarget) -> None:
    with pytest.raises(ConfigurationError, match="does not detect conflicts") as refused:
        open_table(spark, job_for(target))
    assert "single_writer: true" in refused.value.hint


@pytest.mark.parametrize("setting", ["spark.delta.logStore.s3a.impl", "spark.delta.logStore.class"])
@pytest.mark.parametrize(
    ("log_store", "is_safe"),
    [
        ("io.delta.storage.S3SingleDriverLogStore", False),
        ("org.apache.spark.sql.delta.storage.DelegatingLogStore", False),
        ("io.delta.storage.S3DynamoDBLogStore", True),
    ],
)
def test_accepts_a_log_store_with_conflict_detection(
    spark: SparkSession, setting: str, log_store: str, is_safe: bool
) -> None:
    session = spark.newSession()
    session.conf.set(setting, log_store)
    job = job_for(DeltaTarget("s3a://lake/tables"))
    if is_safe:
        open_table(session, job)
        return
    with pytest.raises(ConfigurationError, match="does not detect conflicts") as refused:
        open_table(session, job)
    assert f"set {setting} to" in refused.value.hint


def test_accepts_other_stores_and_a_single_writer(spark: SparkSession) -> None:
    for path in ("/lake", "gs://lake", "abfss://lake@account.dfs.core.windows.net", "hdfs://lake"):
        open_table(spark, job_for(DeltaTarget(path)))
    open_table(spark, job_for(DeltaTarget("s3a://lake/tables", single_writer=True)))
