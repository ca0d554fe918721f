"""The command `outbox-maintain`, or spark-submit spark_jobs/maintain.py: compacts tables and expires what is old."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from pyspark.sql import SparkSession

from outbox_spark.commands.options import command_parser, exit_code, guarded, jobs_of, tell
from outbox_spark.commands.run_each import for_each
from outbox_spark.errors import MaterializeError
from outbox_spark.jobs.model import MaterializeJob, Progress
from outbox_spark.sinks import open_table


@dataclass(frozen=True)
class Maintained:
    """The result of one table: what `--output json` prints."""

    aggregate: str
    target: str
    table: str
    done: str = ""
    error: str | None = None
    hint: str | None = None
    transient: bool | None = None
    """Of a failure: whether trying again may help."""


def maintain(spark: SparkSession, job: MaterializeJob, tell: Progress) -> Maintained:
    """One table. Raises MaterializeError, and whatever else goes wrong."""
    with open_table(spark, job) as table:
        done = table.maintain()
    tell(done)
    return Maintained(job.aggregate, job.target_name, job.table, done)


def failed(job: MaterializeJob, error: MaterializeError) -> Maintained:
    """The result of a table whose maintenance raised."""
    names = (job.aggregate, job.target_name, job.table)
    return Maintained(*names, error=error.message, hint=error.hint, transient=error.transient)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Result on stdout, words on stderr. Returns one of command.Exit."""
    options = _parser().parse_args(arguments)
    return guarded(lambda: _main(options), debug=options.debug)


def _main(options: argparse.Namespace) -> int:
    jobs = jobs_of(options)

    def work(spark: SparkSession, job: MaterializeJob) -> Maintained:
        return maintain(spark, job, tell)

    results = for_each(jobs, tell, work, failed, debug=options.debug, name="outbox-maintain")
    print(_as_json(results) if options.output == "json" else _as_table(results))
    return exit_code(result.transient for result in results if result.error is not None)


def _as_json(results: Sequence[Maintained]) -> str:
    return json.dumps({"maintained": [asdict(result) for result in results]}, indent=2)


def _as_table(results: Sequence[Maintained]) -> str:
    return "\n".join(f"{r.target}.{r.table}  {r.done if r.error is None else 'failed: ' + r.error}" for r in results)


def _parser() -> argparse.ArgumentParser:
    description = "Compact the files of tables and expire what is no longer needed."
    return command_parser("outbox-maintain", description)
