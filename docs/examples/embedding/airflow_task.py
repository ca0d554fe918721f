"""A task for Airflow's PythonOperator: one table; a failure that a retry cannot resolve fails without retries."""

import os

from pyspark.sql import SparkSession

import outbox_spark

try:
    from airflow.exceptions import AirflowFailException as NotRetryableError
except ImportError:  # without Airflow

    class NotRetryableError(Exception):  # type: ignore[no-redef]
        """Fails the task without retries."""


def materialize_table(aggregate: str, target: str) -> int:
    """Materialize the table of an aggregate in a target, and return the number of records."""
    spark = SparkSession.builder.getOrCreate()
    try:
        (job,) = outbox_spark.read_jobs(os.environ["OUTBOX_JOB_FILE"], aggregates=[aggregate], targets=[target])
        return outbox_spark.materialize(spark, job).records
    except outbox_spark.OutboxError as error:
        if error.transient:
            raise
        raise NotRetryableError(f"{error.message}; {error.hint}") from error
