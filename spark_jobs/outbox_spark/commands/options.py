"""Define the command-line options that the Spark commands share, and load the jobs that the options select."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path

from outbox_common.interrupts import ended_by_signals
from outbox_common.pipeline_files import UsageError, only_pipeline_file
from outbox_events.errors import ConfigurationError
from outbox_spark.commands.exit_codes import EXIT_CODES, select_files
from outbox_spark.jobs import job_file, pipeline_loader
from outbox_spark.jobs.model import MaterializeJob
from outbox_spark.runs.materialize_table import BATCH_RECORDS

# The command `outbox` uses the same variables and defaults. An empty variable is treated as unset.
PIPELINE_VARIABLE = "OUTBOX_PIPELINE"
ENVIRONMENT_VARIABLE, DEFAULT_ENVIRONMENT = "OUTBOX_ENVIRONMENT", "local"


def command_parser(name: str, description: str) -> argparse.ArgumentParser:
    """Return a parser that has the options shared by all commands and lists the exit codes in its help."""
    # argparse is used instead of typer, because the driver of a cluster may have only the packages that the jobs need.
    parser = argparse.ArgumentParser(
        prog=name, description=description, epilog=EXIT_CODES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    files = parser.add_mutually_exclusive_group()
    default_pipeline = os.environ.get(PIPELINE_VARIABLE) or None
    pipeline_help = f"pipeline file; default ${PIPELINE_VARIABLE}, else the only file connectors/*.yaml"
    files.add_argument("-p", "--pipeline", type=Path, default=default_pipeline, metavar="FILE", help=pipeline_help)
    files.add_argument("--job", type=Path, metavar="FILE", help="job file (instead of --pipeline and --environment)")
    add = parser.add_argument
    default_text = f"default ${ENVIRONMENT_VARIABLE}, else {DEFAULT_ENVIRONMENT}"
    environment_help = f"name of the environment (connectors/environments/NAME.yaml); {default_text}"
    add("-e", "--environment", default=_default_environment(), metavar="NAME", help=environment_help)
    add("--aggregate", action="append", default=[], help="process only this aggregate type; repeatable")
    add("--target", action="append", default=[], help="process only this target; repeatable")
    add("--table", action="append", default=[], help="process only this table; repeatable")
    add("--output", choices=("table", "json"), default="table", help="format of the result on stdout")
    add("--debug", action="store_true", help="print tracebacks of errors")
    return parser


def _default_environment() -> str:
    return os.environ.get(ENVIRONMENT_VARIABLE) or DEFAULT_ENVIRONMENT


def add_batch_option(parser: argparse.ArgumentParser) -> None:
    """Add `--batch-records`, for commands that read in batches."""
    default = f"{BATCH_RECORDS:,}, but the first run of a table writes all records in one batch"
    records_help = f"approximate number of records per batch (default: {default})"
    parser.add_argument("--batch-records", type=positive_int, metavar="N", help=records_help)


def positive_int(text: str) -> int:
    """Parse an integer of at least 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def positive_seconds(text: str) -> float:
    """Parse a finite number greater than 0."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError("must be a finite number greater than 0")
    return value


def options_of(job: MaterializeJob) -> str:
    """Return the options that select only this job, for a command line."""
    return shlex.join(["--target", job.target_name, "--table", job.table])


def selected_jobs(options: argparse.Namespace, *, without_secrets: bool = False) -> list[MaterializeJob]:
    """Return the jobs that the options select in the job file or pipeline file (see load_jobs).

    Raises UsageError if no selected job has a table of --table.
    """
    jobs = _jobs_in_file(options, without_secrets=without_secrets)
    unknown = set(options.table) - {job.table for job in jobs}
    if unknown:
        tables = ", ".join(f"{job.target_name}.{job.table}" for job in jobs)
        raise UsageError(
            f"no selected table is {', '.join(sorted(unknown))}", f"correct --table; selected are: {tables}"
        )
    return [job for job in jobs if not options.table or job.table in options.table]


def _jobs_in_file(options: argparse.Namespace, *, without_secrets: bool) -> list[MaterializeJob]:
    selected = {"aggregates": options.aggregate, "targets": options.target}
    if options.job is not None:
        if options.environment != _default_environment():
            message = f"--environment {options.environment} cannot be used with --job {options.job}"
            raise ConfigurationError(message, "remove one of the two options: a job file is for a single environment")
        jobs = job_file.read_jobs(options.job, **selected)
        select_files(job=shlex.join(["--job", str(options.job)]))
        return jobs
    with ended_by_signals():
        load_jobs = pipeline_loader()
    pipeline_file = options.pipeline or only_pipeline_file()
    select_files(pipeline=shlex.join(["-p", str(pipeline_file), "-e", options.environment]))
    return load_jobs(pipeline_file, options.environment, without_secrets=without_secrets, **selected)
