"""The command `outbox-materialize`, or spark-submit spark_jobs/materialize.py."""

from __future__ import annotations

import argparse
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from outbox_spark.command import Exit, Tell, common_options, explain, guarded, plain_interrupts, tell
from outbox_spark.configuration import load_jobs
from outbox_spark.export import export
from outbox_spark.model import MaterializeJob, Outcome, Status
from outbox_spark.report import as_json, as_table, failed
from outbox_spark.runs import BATCH_RECORDS, materialize
from outbox_spark.session import start_session
from outbox_spark.unexpected import explained


def run(
    jobs: Sequence[MaterializeJob],
    tell: Tell,
    *,
    debug: bool = False,
    export_to: Path | None = None,
    max_records: int = BATCH_RECORDS,
) -> list[Outcome]:
    """Run jobs one after another in one session. A job that fails does not keep the others from running."""
    tell("starting Spark")
    spark = start_session()
    plain_interrupts()
    try:
        outcomes = [_attempt(spark, job, tell, max_records, debug=debug) for job in jobs]
        if export_to is None:
            return outcomes
        pairs = zip(jobs, outcomes, strict=True)
        return [_exported(spark, job, outcome, tell, export_to, debug=debug) for job, outcome in pairs]
    finally:
        spark.stop()


def _attempt(spark: SparkSession, job: MaterializeJob, tell: Tell, max_records: int, *, debug: bool) -> Outcome:
    try:
        return materialize(spark, job, tell, max_records)
    except Exception as error:  # whatever it is, the other tables still run
        if debug:
            tell(traceback.format_exc())
        known = explained(error)
        explain(known, tell, str(job))
        return failed(job, known)


def _exported(
    spark: SparkSession, job: MaterializeJob, outcome: Outcome, tell: Tell, folder: Path, *, debug: bool
) -> Outcome:
    """Export one table; where that fails, the outcome says so: whoever asked for the rows does not have them."""
    if outcome.status is Status.FAILED:  # there may be no table at all
        return outcome
    try:
        export(spark, [job], folder)
    except Exception as error:  # the other tables are still exported
        if debug:
            tell(traceback.format_exc())
        known = explained(error)
        explain(known, tell, f"export of {job.target_name}.{job.table}")
        message = f"the table is up to date, but its export failed: {known.message}"
        return replace(outcome, status=Status.FAILED, error=message, hint=known.hint, transient=known.transient)
    return outcome


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Result on stdout, words on stderr. Returns one of command.Exit."""
    options = _parser().parse_args(arguments)
    return guarded(lambda: _main(options), debug=options.debug)


def _main(options: argparse.Namespace) -> int:
    jobs = load_jobs(options.pipeline, options.environment, aggregates=options.aggregate, targets=options.target)
    outcomes = run(jobs, tell, debug=options.debug, export_to=options.export, max_records=options.batch_records)
    print(as_json(outcomes) if options.output == "json" else as_table(outcomes))
    return exit_of(outcomes)


def exit_of(outcomes: Sequence[Outcome]) -> Exit:
    """The exit code of several results: the one that needs a person goes first."""
    bad = [outcome for outcome in outcomes if outcome.status is Status.FAILED]
    if not bad:
        return Exit.DONE
    return Exit.FAILED if all(outcome.transient for outcome in bad) else Exit.REFUSED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="outbox-materialize", description="Bring tables to the newest state of their topics."
    )
    common_options(parser)
    add = parser.add_argument
    add("--batch-records", type=int, default=BATCH_RECORDS, metavar="N", help="records of one batch, about")
    add("--export", type=Path, metavar="DIR", help="afterwards write the rows of Delta tables there as JSON lines")
    return parser
