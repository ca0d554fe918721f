"""Airflow 3 DAG that updates tables every 15 minutes. For Airflow 2 import `dag` and `task` from airflow.decorators."""

from __future__ import annotations

import os
import subprocess
from datetime import datetime, timedelta

from airflow.exceptions import AirflowFailException
from airflow.sdk import dag, task

COMMAND = ["outbox-materialize", "--job", "/etc/outbox/job.json", "--metrics", "/var/log/outbox/metrics.jsonl"]
# Java 17 or 21, and the folder with Spark's additional jars; the secrets come from the worker's environment.
ENVIRONMENT = {"JAVA_HOME": "/usr/lib/jvm/java-17-openjdk-amd64", "OUTBOX_SPARK_JARS": "/opt/outbox/spark/jars"}
TABLES = ["author", "book"]
SUCCESS, NOT_RETRYABLE = (0,), (2, 4)


@dag(
    schedule="*/15 * * * *",
    start_date=datetime(2026, 1, 1),
    catchup=False,  # one run reads all new records, so runs for earlier intervals are unnecessary
    max_active_runs=1,  # no second run while one is active
    default_args={
        "retries": 3,
        "retry_delay": timedelta(minutes=2),
        "retry_exponential_backoff": True,
        "execution_timeout": timedelta(hours=2),
    },
)
def outbox_materialize() -> None:
    """One task per aggregate, each with its own retries."""

    @task
    def materialize(aggregate: str) -> None:
        environment = {**os.environ, **ENVIRONMENT}
        code = subprocess.run([*COMMAND, "--aggregate", aggregate], env=environment, check=False).returncode
        if code in NOT_RETRYABLE:
            raise AirflowFailException(f"exit code {code}: not retryable, see the log")
        if code not in SUCCESS:
            raise RuntimeError(f"exit code {code}: retryable, see the log")

    materialize.expand(aggregate=TABLES)


outbox_materialize()
