"""A Python model of dbt: the newest states of a topic, without the rows that cannot be read."""

import os
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import outbox_spark


def model(dbt: Any, session: SparkSession) -> DataFrame:  # noqa: ANN401 - dbt has no type for it
    """Return the rows of the model."""
    dbt.config(materialized="table")
    (job,) = outbox_spark.read_jobs(os.environ["OUTBOX_JOB_FILE"], aggregates=["thing"])
    state = outbox_spark.read_state(session, job)
    return state.where("__outbox_reason IS NULL").drop("__outbox_reason")
