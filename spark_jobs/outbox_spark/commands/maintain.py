"""Compact tables and expire old data: the command `outbox-maintain`, or spark-submit spark_jobs/maintain.py."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from pyspark.sql import SparkSession

from outbox_common.error_text import one_line
from outbox_events.errors import OutboxError, RefusedError
from outbox_spark.commands.exit_codes import exit_code, failure_fields, print_message, print_result, run_command
from outbox_spark.commands.options import command_parser, selected_jobs
from outbox_spark.commands.run_each import run_jobs
from outbox_spark.jobs.model import MaterializeJob, Reporter
from outbox_spark.session.run_session import in_run_session
from outbox_spark.sinks import open_table


@dataclass(frozen=True)
class MaintainedTable:
    """Result of outbox-maintain for one table, as printed with `--output json`."""

    aggregate: str
    target: str
    table: str
    done: str = ""
    error: str | None = None
    hint: str | None = None
    transient: bool | None = None
    """Whether the failure is retryable; None if there was no failure."""


@in_run_session
def maintain(spark: SparkSession, job: MaterializeJob, report: Reporter) -> MaintainedTable:
    """Maintain the table. Raises RefusedError for a table of another topic, before anything is removed."""
    with open_table(spark, job, report) as table:
        written = table.written_topic()
        if written is not None and written[0] != job.topic:
            message = f"{job}: the table was written from topic {written[0]}"
            raise RefusedError(message, "check the target and the table in the environment file")
        summary = table.maintain()
    report(summary)
    return MaintainedTable(job.aggregate, job.target_name, job.table, summary)


def failed_maintenance(job: MaterializeJob, error: OutboxError) -> MaintainedTable:
    return MaintainedTable(job.aggregate, job.target_name, job.table, **failure_fields(error))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, which prints its result to stdout and messages to stderr. Return its exit code (an Exit)."""
    options = _parser().parse_args(arguments)
    return run_command(lambda: _main(options), debug=options.debug)


def _main(options: argparse.Namespace) -> int:
    def work(spark: SparkSession, job: MaterializeJob) -> MaintainedTable:
        return maintain(spark, job, print_message)

    jobs = selected_jobs(options)
    results = run_jobs(jobs, print_message, work, failed_maintenance, debug=options.debug, name="outbox-maintain")
    if options.output == "json":
        print_result(json.dumps({"maintained": [asdict(result) for result in results]}, indent=2))
    else:
        for item in results:
            result = item.done if item.error is None else f"failed: {item.error}"
            print_result(one_line(f"{item.target}.{item.table}  {result}"))
    return exit_code(result.transient for result in results if result.error is not None)


def _parser() -> argparse.ArgumentParser:
    return command_parser("outbox-maintain", "Compact tables, and remove dead rows and obsolete snapshots and files.")
