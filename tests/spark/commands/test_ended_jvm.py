"""Commands whose JVM is killed, for example because the machine has no more memory."""

from __future__ import annotations

import subprocess
import sys

from tests.conftest import REPOSITORY

SCRIPT = """
import os
import signal

from outbox_spark.commands.exit_codes import print_message, run_command
from outbox_spark.commands.run_each import run_jobs
from outbox_spark.session.run_session import run_session
from tests.spark.job_files import job


def work(spark, job):
    with run_session(spark, job) as session:
        os.kill(int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()), signal.SIGKILL)
        session.sql("select 1").collect()


def main():
    results = run_jobs([job()], print_message, work, lambda job, error: error.transient, debug=False)
    print("retryable:", results)
    return 0


run_command(main, debug=False)
"""


def test_reports_that_the_jvm_has_ended() -> None:
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, timeout=120, cwd=REPOSITORY
    )
    assert result.returncode == 0, result.stderr
    assert "retryable: [True]" in result.stdout
    assert "JVM of Spark's driver has ended" in result.stderr
    assert "Traceback" not in result.stderr
