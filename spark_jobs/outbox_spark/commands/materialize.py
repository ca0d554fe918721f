"""The command `outbox-materialize`, or spark-submit spark_jobs/materialize.py."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from outbox_spark.commands import dry_run, metrics, run_each
from outbox_spark.commands.export import ExportFormat, export
from outbox_spark.commands.interval import MAX_FAILURES, Rounds, Rules, Stop, stopping_on_signals, without_repeats
from outbox_spark.commands.metrics import Metrics
from outbox_spark.commands.options import Exit, command_parser, exit_code, guarded, jobs_of, tell
from outbox_spark.commands.report import as_json, as_table, failed
from outbox_spark.errors import ConfigurationError, MaterializeError
from outbox_spark.jobs import job_file
from outbox_spark.jobs.model import MaterializeJob, Outcome, Progress, ReadRange, Status
from outbox_spark.kafka.replay import BEGINNING, parsed
from outbox_spark.runs.apply_batch import Applied
from outbox_spark.runs.materialize_table import BATCH_RECORDS, materialize


@dataclass(frozen=True)
class Runner:
    """Runs tables in one session, and tells of each batch whoever wants to know."""

    spark: SparkSession
    tell: Progress
    max_records: int = BATCH_RECORDS
    debug: bool = False
    metrics: Metrics | None = None
    stop: Stop | None = None
    replay_from: str | None = None

    def attempt(self, job: MaterializeJob) -> Outcome:
        """One run of one table. Whatever goes wrong is told and in the outcome; raises Stopped alone."""
        if self.metrics is not None:
            self.metrics.begin()
        run = partial(
            materialize,
            self.spark,
            job,
            self.tell,
            self.max_records,
            on_batch=self._on_batch,
            replay_from=self.replay_from,
        )
        started = time.monotonic()

        def gave_up(error: MaterializeError) -> Outcome:
            return replace(failed(job, error), seconds=round(time.monotonic() - started, 3))

        outcome = run_each.attempt(str(job), self.tell, run, gave_up, debug=self.debug)
        if self.metrics is not None:
            self.metrics.run(job, outcome)
        return outcome

    def alive(self) -> bool:
        """Whether the JVM answers and its SparkContext is not stopped."""
        try:
            return not self.spark.sparkContext._jsc.sc().isStopped()
        except Exception:  # what a broken connection raises differs by how it broke
            return False

    def _on_batch(self, job: MaterializeJob, applied: Applied, read: ReadRange, left: int) -> None:
        if self.metrics is not None:
            self.metrics.batch(job, applied, read, left)
        # After the last batch the run is complete anyway.
        if self.stop is not None and left:
            self.stop.after_batch()


def _exported(
    spark: SparkSession, job: MaterializeJob, outcome: Outcome, tell: Progress, options: argparse.Namespace
) -> Outcome:
    """Export one table; where that fails, the outcome says so: whoever asked for the rows does not have them."""
    if outcome.status is Status.FAILED:  # there may be no table at all
        return outcome

    def exported() -> Outcome:
        export(spark, [job], options.export, options.export_format or ExportFormat.JSON)
        return outcome

    def not_exported(error: MaterializeError) -> Outcome:
        message = f"the table is up to date, but its export failed: {error.message}"
        return replace(outcome, status=Status.FAILED, error=message, hint=error.hint, transient=error.transient)

    where = f"export of {job.target_name}.{job.table}"
    return run_each.attempt(where, tell, exported, not_exported, debug=options.debug)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Result on stdout, words on stderr. Returns one of command.Exit."""
    parser = _parser()
    options = parser.parse_args(arguments)
    _check(parser, options)
    return guarded(lambda: _main(options), debug=options.debug)


def _main(options: argparse.Namespace) -> int:
    if options.write_job is not None:
        return _write_job(options)
    jobs = jobs_of(options)
    if options.dry_run:
        previews = dry_run.dry_run(jobs, run_each.start, tell)
        print(dry_run.as_json(previews) if options.output == "json" else dry_run.as_text(previews))
        return dry_run.exit_of(previews)
    if options.replay_from not in {None, BEGINNING}:
        parsed(options.replay_from)  # before Spark starts
    with metrics.opened(options.metrics, tell) as lines:
        outcomes, code = _run(jobs, options, lines)
    print(as_json(outcomes) if options.output == "json" else as_table(outcomes))
    return code


def _run(
    jobs: Sequence[MaterializeJob], options: argparse.Namespace, lines: Metrics | None
) -> tuple[list[Outcome], Exit]:
    """Run the jobs, once or in rounds, in one session. A job that fails does not keep the others from running."""
    continuous = options.interval is not None
    stop = Stop()
    tell("starting Spark")
    spark = run_each.start()
    signals: AbstractContextManager[None] = stopping_on_signals(stop, tell) if continuous else nullcontext()
    try:
        if lines is not None:
            lines.attach(spark)
        with signals:
            words = without_repeats(tell) if continuous else tell
            runner = Runner(
                spark,
                words,
                options.batch_records,
                options.debug,
                lines,
                stop if continuous else None,
                options.replay_from,
            )
            if continuous:
                rules = Rules(options.interval, options.max_failures, options.fail_fast)
                rounds = Rounds(jobs, runner.attempt, rules, stop, words, runner.alive)
                code = rounds.run()
                return [rounds.last[number] for number in sorted(rounds.last)], code
            outcomes = [runner.attempt(job) for job in jobs]
        if options.export is not None:
            pairs = zip(jobs, outcomes, strict=True)
            outcomes = [_exported(spark, job, outcome, tell, options) for job, outcome in pairs]
        return outcomes, exit_of(outcomes)
    finally:
        spark.stop()


def exit_of(outcomes: Sequence[Outcome]) -> Exit:
    """The exit code of several results."""
    return exit_code(outcome.transient for outcome in outcomes if outcome.status is Status.FAILED)


def _write_job(options: argparse.Namespace) -> Exit:
    """Write the selected jobs as a file that needs neither the pipeline file nor the deploy tool."""
    # Here, because only who writes the file has the deploy tool.
    from outbox_spark.jobs.from_pipeline import jobs_without_secrets  # noqa: PLC0415

    jobs = jobs_without_secrets(
        options.pipeline, options.environment, aggregates=options.aggregate, targets=options.target
    )
    text = job_file.as_text(jobs)
    if str(options.write_job) == "-":
        sys.stdout.write(text)
    else:
        try:
            options.write_job.write_text(text, encoding="utf-8")
        except OSError as error:
            message = f"cannot write {options.write_job}: {error.strerror}"
            raise ConfigurationError(message, "name a file in a folder that exists and can be written") from None
    needed = ", ".join(job_file.variables(text)) or "none"
    tell(f"{len(jobs)} jobs written; environment variables that they need at start: {needed}")
    return Exit.DONE


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("outbox-materialize", "Bring tables to the newest state of their topics.")
    add = parser.add_argument
    batch_option(parser)
    add("--replay-from", metavar="TIME", help=f"read again from then on: ISO 8601, or {BEGINNING}")
    add("--export", type=Path, metavar="DIR", help="then write the rows of Delta and Iceberg tables to files in DIR")
    formats = [*ExportFormat]
    add("--export-format", type=ExportFormat, choices=formats, help="format of these files; default json (JSON lines)")
    metrics_help = "append a JSON line for every batch and every run of a table; - is stderr"
    add("--metrics", metavar="FILE", help=metrics_help)
    what = parser.add_argument_group("instead of one run").add_mutually_exclusive_group()
    what.add_argument("--interval", type=_seconds, metavar="SECONDS", help="go on: a round every so many seconds")
    what.add_argument("--dry-run", action="store_true", help="show what would be read; no write, no lock")
    what.add_argument("--write-job", type=Path, metavar="FILE", help="write the jobs for --job, without secrets")
    rounds = parser.add_argument_group("with --interval")
    many = f"end after N failures of a table in a row; default {MAX_FAILURES}"
    rounds.add_argument("--max-failures", type=_count, metavar="N", help=many)
    fast = "end at the first error that trying again cannot mend, instead of leaving the table out"
    rounds.add_argument("--fail-fast", action="store_true", help=fast)
    return parser


def batch_option(parser: argparse.ArgumentParser) -> None:
    """`--batch-records`, of the commands that read in batches."""
    parser.add_argument(
        "--batch-records",
        type=_count,
        default=BATCH_RECORDS,
        metavar="N",
        help="records of one batch, about; default %(default)s",
    )


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Options that mean nothing together are wrong usage, exit code 2."""
    if options.interval is None and (options.fail_fast or options.max_failures is not None):
        parser.error("--fail-fast and --max-failures need --interval")
    if options.export_format is not None and options.export is None:
        parser.error("--export-format needs --export")
    if options.interval is not None and options.export is not None:
        parser.error("--export: not allowed with --interval")
    if options.interval is not None and options.replay_from is not None:
        parser.error("--replay-from: not allowed with --interval: every round would read it again")
    if options.dry_run and options.replay_from is not None:
        parser.error("--replay-from: not allowed with --dry-run, which looks at what is new alone")
    if options.write_job is not None and options.job is not None:
        parser.error("--job: not allowed with --write-job")
    if options.max_failures is None:
        options.max_failures = MAX_FAILURES


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError("more than 0")
    return value
