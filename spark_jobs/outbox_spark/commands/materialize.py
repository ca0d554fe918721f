"""Apply new records to tables: the command `outbox-materialize`, or spark-submit spark_jobs/materialize.py."""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from outbox_common.private_files import write_private
from outbox_events.errors import ConfigurationError, OutboxError
from outbox_spark.commands import dry_run, metrics, run_each
from outbox_spark.commands.exit_codes import Exit, print_message, print_result, report_error, run_command
from outbox_spark.commands.export import ExportFormat, export
from outbox_spark.commands.interval import MAX_FAILURES, Rounds, Stopped, stopping_on_signals, without_repeats
from outbox_spark.commands.metrics import Metrics, RunMetrics
from outbox_spark.commands.options import (
    add_batch_option,
    command_parser,
    positive_int,
    positive_seconds,
    selected_jobs,
)
from outbox_spark.commands.run_report import as_json, as_table, exit_of, failed_outcome
from outbox_spark.commands.workers import SingleWorker, Workers, WorkerThreads
from outbox_spark.jobs import job_file
from outbox_spark.jobs.model import MaterializeJob, Outcome, ReadRange, Reporter, Status
from outbox_spark.kafka.replay import BEGINNING, parse_time
from outbox_spark.runs.apply_batch import AppliedBatch
from outbox_spark.runs.clients import Clients
from outbox_spark.runs.materialize_table import NOTHING_NEW, Totals, materialize, outcome_of
from outbox_spark.runs.prepared_rows import PreparedRows
from outbox_spark.session.error_redaction import redacted
from outbox_spark.session.run_session import run_session
from outbox_spark.session.spark_session import FEW_RECORDS


@dataclass(frozen=True)
class Runner:
    """Materializes tables in one Spark session, with the options of the command."""

    spark: SparkSession
    report: Reporter
    max_records: int | None = None
    debug: bool = False
    metrics: Metrics | None = None
    stop: threading.Event | None = None
    replay_from: str | None = None
    clients: Clients | None = None
    """Connections that the runs share; None if each run connects itself."""
    _prepared: dict[int, PreparedRows] = field(default_factory=dict)
    """Plans of small batches by the identity of the job."""

    def attempt(self, job: MaterializeJob, *raised: type[Exception]) -> Outcome:
        """Materialize one table. Report any error and return it in the outcome, but propagate Stopped and `raised`."""
        run_metrics = None if self.metrics is None else RunMetrics(self.metrics, job)
        run = partial(
            materialize,
            self.spark,
            job,
            self.report,
            self.max_records,
            on_batch=partial(self._on_batch, run_metrics),
            replay_from=self.replay_from,
            clients=self.clients,
            prepared=self._prepared.setdefault(id(job), PreparedRows()),
        )
        started = time.monotonic()

        def on_error(error: OutboxError) -> Outcome:
            return replace(failed_outcome(job, error), seconds=round(time.monotonic() - started, 3))

        outcome = run_each.attempt(job, self.report, run, on_error, debug=self.debug, raised=(Stopped, *raised))
        if outcome.status is Status.FAILED and self.clients is not None:
            self.clients.close()
        if run_metrics is not None:
            run_metrics.write_run(outcome, self.clients)
        return outcome

    def with_session(self, session: SparkSession, clients: Clients) -> Runner:
        """Return a runner with the same options for another session, which keeps its own plans of small batches."""
        return replace(self, spark=session, clients=clients, _prepared={})

    def driver_responds(self) -> bool:
        """Whether the JVM responds and its SparkContext is not stopped."""
        try:
            return not self.spark.sparkContext._jsc.sc().isStopped()
        except Exception:  # the type of the error depends on how the connection broke
            return False

    def _on_batch(
        self, run_metrics: RunMetrics | None, applied: AppliedBatch, offsets: ReadRange, remaining_offsets: int
    ) -> None:
        if run_metrics is not None:
            run_metrics.write_batch(applied, offsets, remaining_offsets)
        # If no offsets remain, the run is complete. Otherwise, the next run continues at the committed offsets.
        if self.stop is not None and self.stop.is_set() and remaining_offsets:
            raise Stopped


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, which prints its result to stdout and messages to stderr. Return its exit code (an Exit)."""
    parser = _parser()
    options = parser.parse_args(arguments)
    _validate(parser, options)
    return run_command(lambda: _main(options), debug=options.debug)


def _main(options: argparse.Namespace) -> int:
    if options.write_job is not None:
        return _write_job(options)
    jobs = selected_jobs(options)
    if options.dry_run:
        previews = dry_run.dry_run(jobs, partial(run_each.start_spark, few_records=True), print_message)
        print_result(dry_run.as_json(previews) if options.output == "json" else dry_run.as_text(previews))
        return dry_run.exit_of(previews)
    if options.replay_from not in {None, BEGINNING}:
        parse_time(options.replay_from)  # report an invalid time before Spark starts
    with metrics.open_metrics(options.metrics, print_message) as metrics_writer:
        planned = _planned_reads(jobs, options)
        known = _known_outcomes(jobs, planned, metrics_writer)
        remaining = {index: job for index, job in enumerate(jobs) if index not in known}
        outcomes, code = list[Outcome](), Exit.DONE
        if remaining:
            run = _run_once if options.interval is None else _run_rounds
            few_records = planned.is_complete and planned.max_offsets <= FEW_RECORDS
            fair_scheduling = options.threads > 1
            with _started_spark(metrics_writer, few_records=few_records, fair_scheduling=fair_scheduling) as spark:
                outcomes, code = run(spark, list(remaining.values()), options, metrics_writer)
        for index, outcome in sorted(known.items()):
            outcomes.insert(index, outcome)
        if known:  # only in a single run
            code = exit_of(outcomes)
    print_result(as_json(outcomes) if options.output == "json" else as_table(outcomes))
    return code


def _planned_reads(jobs: Sequence[MaterializeJob], options: argparse.Namespace) -> dry_run.PlannedReads:
    if options.interval is not None or options.replay_from is not None or options.export is not None:
        return dry_run.PlannedReads()
    return dry_run.planned_reads(jobs)


def _known_outcomes(
    jobs: Sequence[MaterializeJob], planned: dry_run.PlannedReads, metrics_writer: Metrics | None
) -> dict[int, Outcome]:
    """Return, by the index of the job, the outcomes of tables for which a single run does not need Spark.

    These tables have no new records, or the brokers of their topics do not respond.
    """
    outcomes = {}
    for index, read_range in planned.unchanged.items():
        outcomes[index] = outcome_of(jobs[index], read_range, Status.UNCHANGED, time.monotonic(), Totals())
        print_message(f"{jobs[index]}: {NOTHING_NEW}")
    for index, error in planned.unreachable.items():
        failure = redacted(error)
        outcomes[index] = failed_outcome(jobs[index], failure)
        report_error(failure, print_message, str(jobs[index]))
    if metrics_writer is not None:
        for index, outcome in outcomes.items():
            RunMetrics(metrics_writer, jobs[index]).write_run(outcome)
    return outcomes


@contextmanager
def _started_spark(
    metrics_writer: Metrics | None, *, few_records: bool, fair_scheduling: bool
) -> Iterator[SparkSession]:
    spark = run_each.start_spark(few_records=few_records, fair_scheduling=fair_scheduling)
    try:
        if metrics_writer is not None:
            metrics_writer.attach(spark)
        yield spark
    finally:
        run_each.stop_spark(spark)


def _run_once(
    spark: SparkSession, jobs: Sequence[MaterializeJob], options: argparse.Namespace, metrics_writer: Metrics | None
) -> tuple[list[Outcome], Exit]:
    max_records, replay_from = options.batch_records, options.replay_from
    runner = Runner(spark, print_message, max_records, options.debug, metrics_writer, replay_from=replay_from)
    with _opened_workers(
        spark, min(options.threads, len(jobs)), lambda: nullcontext(runner), threading.Event()
    ) as workers:
        outcomes = run_each.run_all(jobs, workers, print_message)
    if options.export is not None:
        pairs = zip(jobs, outcomes, strict=True)
        outcomes = [_export_table(spark, job, outcome, options) for job, outcome in pairs]
    return outcomes, exit_of(outcomes)


def _run_rounds(
    spark: SparkSession, jobs: Sequence[MaterializeJob], options: argparse.Namespace, metrics_writer: Metrics | None
) -> tuple[list[Outcome], Exit]:
    stop, report = threading.Event(), without_repeats(print_message)
    runner = Runner(spark, report, options.batch_records, options.debug, metrics_writer, stop)

    @contextmanager
    def open_runner() -> Iterator[Runner]:
        # All rounds use one session, because creating a session takes longer than a round without new records.
        with run_session(spark, jobs[0]) as session, Clients() as clients:
            yield runner.with_session(session, clients)

    with (
        stopping_on_signals(stop, print_message),
        _opened_workers(spark, min(options.threads, len(jobs)), open_runner, stop) as workers,
    ):
        limits = options.interval, options.max_failures, options.fail_fast
        rounds = Rounds(jobs, workers, stop, report, *limits, runner.driver_responds)
        code = rounds.run()
    return [rounds.last_outcomes[index] for index in sorted(rounds.last_outcomes)], code


@contextmanager
def _opened_workers(
    spark: SparkSession,
    threads: int,
    open_runner: Callable[[], AbstractContextManager[Runner]],
    stop: threading.Event,
) -> Iterator[Workers[Runner]]:
    """Yield a runner for this thread, or runners for several threads, each with a scheduler pool of its own."""
    if threads == 1:
        with open_runner() as runner:
            yield SingleWorker(runner, stop)
        return

    @contextmanager
    def open_in_pool() -> Iterator[Runner]:
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", threading.current_thread().name)
        with open_runner() as runner:
            yield runner

    with WorkerThreads(threads, open_in_pool, stop) as workers:
        yield workers


def _export_table(spark: SparkSession, job: MaterializeJob, outcome: Outcome, options: argparse.Namespace) -> Outcome:
    """Export one table. Return the table's outcome, with the status `failed` if the export failed."""
    if outcome.status is Status.FAILED:  # the table may not exist
        return outcome

    def run() -> Outcome:
        export(spark, job, options.export, options.export_format or ExportFormat.JSON)
        return outcome

    def on_error(error: OutboxError) -> Outcome:
        message = f"the table is up to date, but its export failed: {error.message}"
        return replace(outcome, status=Status.FAILED, error=message, hint=error.hint, transient=error.transient)

    subject = f"export of {job.target_name}.{job.table}"
    return run_each.attempt(job, print_message, run, on_error, debug=options.debug, subject=subject)


def _write_job(options: argparse.Namespace) -> Exit:
    jobs = selected_jobs(options, without_secrets=True)
    text = job_file.as_text(jobs)
    if str(options.write_job) == "-":
        sys.stdout.write(text)
    else:
        try:
            write_private(options.write_job, text)
        except OSError as error:
            message = f"cannot write {options.write_job}: {error.strerror}"
            raise ConfigurationError(message, "specify a file that you can create or overwrite") from None
    variables = ", ".join(job_file.variables(text)) or "none"
    print_message(f"jobs in the file: {len(jobs)}; environment variables that they require: {variables}")
    return Exit.DONE


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("outbox-materialize", "Materialize topics as tables, up to the end of each topic.")
    add = parser.add_argument
    add_batch_option(parser)
    threads_help = "number of tables that are processed at the same time; default %(default)s"
    add("--threads", type=positive_int, default=1, metavar="N", help=threads_help)
    add("--replay-from", metavar="TIME", help=f"read again all records since TIME (ISO 8601 or `{BEGINNING}`)")
    add("--export", type=Path, metavar="DIR", help="after the run, export Delta and Iceberg tables to files in DIR")
    formats = [*ExportFormat]
    add("--export-format", type=ExportFormat, choices=formats, help="file format; default json (JSON Lines)")
    metrics_help = "append a JSON line to FILE for each batch and each run of a table; `-` writes to stderr instead"
    add("--metrics", metavar="FILE", help=metrics_help)
    alternative = parser.add_argument_group("alternatives to a single run").add_mutually_exclusive_group().add_argument
    alternative("--interval", type=positive_seconds, metavar="SECONDS", help="repeat the run every SECONDS seconds")
    alternative("--dry-run", action="store_true", help="print the offsets that a run would read")
    alternative("--write-job", type=Path, metavar="FILE", help="write the jobs to a job file, without secrets")
    add_rule = parser.add_argument_group("options for --interval").add_argument
    max_failures_help = f"exit after N consecutive failures of one table; default {MAX_FAILURES}"
    add_rule("--max-failures", type=positive_int, metavar="N", help=max_failures_help)
    fail_fast_help = "exit at the first error that is not retryable, instead of excluding the failed table"
    add_rule("--fail-fast", action="store_true", help=fail_fast_help)
    return parser


def _validate(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Exit with code 2 if options cannot be combined. Otherwise set the default of --max-failures."""
    if options.interval is None and (options.fail_fast or options.max_failures is not None):
        parser.error("--fail-fast and --max-failures need --interval")
    if options.export_format is not None and options.export is None:
        parser.error("--export-format needs --export")
    if options.interval is not None and options.export is not None:
        parser.error("--export: not allowed with --interval")
    if options.interval is not None and options.replay_from is not None:
        parser.error("--replay-from: not allowed with --interval, because every round would read the same records")
    if options.dry_run and options.replay_from is not None:
        parser.error("--replay-from: not allowed with --dry-run, which reports only new records")
    if options.threads > 1 and os.environ.get("PYSPARK_PIN_THREAD", "true").lower() != "true":
        parser.error("--threads needs PYSPARK_PIN_THREAD=true; otherwise the threads would share a Spark session")
    if options.write_job is not None and options.job is not None:
        parser.error("--job: not allowed with --write-job")
    if options.max_failures is None:
        options.max_failures = MAX_FAILURES
