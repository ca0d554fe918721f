"""The command `outbox-rebuild`: a table made anew from the beginning of its topic, put in place in one step."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Sequence
from dataclasses import replace

from msgspec import structs
from pyspark.sql import SparkSession

from outbox_spark.commands.materialize import batch_option, exit_of
from outbox_spark.commands.options import command_parser, guarded, jobs_of, tell
from outbox_spark.commands.report import as_json, as_table, failed
from outbox_spark.commands.run_each import for_each
from outbox_spark.errors import OverlapError, RefusedError
from outbox_spark.jobs.model import MaterializeJob, MissedTombstones, Outcome, Progress, Status
from outbox_spark.kafka.ranges import resolve
from outbox_spark.kafka.topic import Topic, topic_of
from outbox_spark.runs.materialize_table import BATCH_RECORDS, materialize
from outbox_spark.sinks import open_table

SHADOW_SUFFIX = "__rebuild"
_LONGEST = 45
"""Of a table's name, where PostgreSQL has to find room for the name of its staging table."""


def rebuild(
    spark: SparkSession,
    job: MaterializeJob,
    tell: Progress,
    max_records: int = BATCH_RECORDS,
    *,
    restart: bool = False,
    topic: Topic | None = None,
) -> Outcome:
    """Materialize the topic into a shadow table, then make its content the table's. Raises OutboxKitError.

    Until the last step the table is as it was, and its own runs go on. A rebuild that was stopped continues, unless
    `restart`.
    """
    topic = topic or topic_of(spark, job)
    shadow = shadow_of(job)
    _prepare(spark, job, shadow, topic, tell, restart=restart)
    first = materialize(spark, shadow, tell, max_records, topic=topic)
    # From here on the table has no runs: it must not show later what it has shown already. Where no lock keeps them
    # away, replace_by refuses after one.
    with open_table(spark, job, tell) as table:
        rest = materialize(spark, shadow, tell, max_records, topic=topic)
        with open_table(spark, shadow, tell) as source:
            table.replace_by(source)
    tell(f"{job}: rebuilt, and in place")
    return replace(first.then(rest), table=job.table, status=Status.CHANGED)


def shadow_of(job: MaterializeJob) -> MaterializeJob:
    """The job that fills the shadow. It compares itself with the topic when it has missed tombstones."""
    name = job.table + SHADOW_SUFFIX
    if len(name) > _LONGEST:
        short = hashlib.sha256(job.table.encode()).hexdigest()[:8]
        name = f"{job.table[: _LONGEST - len(SHADOW_SUFFIX) - len(short) - 1]}_{short}{SHADOW_SUFFIX}"
    options = structs.replace(job.options, missed_tombstones=MissedTombstones.RECONCILE)
    return structs.replace(job, table=name, options=options)


def _prepare(
    spark: SparkSession, job: MaterializeJob, shadow: MaterializeJob, topic: Topic, tell: Progress, *, restart: bool
) -> None:
    """Remove a shadow that cannot be continued; say what a rebuild cannot know."""
    with open_table(spark, shadow, tell) as table:
        if restart:
            table.drop()
            return
        try:
            committed = table.committed()
            if committed is not None:
                resolve(topic.describe(), committed)
                tell(f"{job}: the rebuild that was stopped continues")
        except OverlapError:
            raise
        except RefusedError as error:
            tell(f"{job}: the rebuild that was stopped begins anew: {error.message}")
            table.drop()
    _warn_of_growth(spark, job, tell)


def _warn_of_growth(spark: SparkSession, job: MaterializeJob, tell: Progress) -> None:
    try:
        with open_table(spark, job, tell) as table:
            committed = table.committed()
    except OverlapError:
        return  # a run of the table; it ends before the rebuild does
    except RefusedError as error:
        tell(f"{job}: {error.message}; the rebuild puts it right")
        return
    if committed is not None and committed.partition_epoch > 0:
        tell(
            f"warning: {job}: the topic grew while the table was made. Keys that were deleted since may still have a "
            "live record in their old partition, and come back"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Result on stdout, words on stderr. Returns one of command.Exit."""
    options = _parser().parse_args(arguments)
    return guarded(lambda: _main(options), debug=options.debug)


def _main(options: argparse.Namespace) -> int:
    jobs = jobs_of(options)

    def work(spark: SparkSession, job: MaterializeJob) -> Outcome:
        return rebuild(spark, job, tell, options.batch_records, restart=options.restart)

    outcomes = for_each(jobs, tell, work, failed, debug=options.debug)
    print(as_json(outcomes) if options.output == "json" else as_table(outcomes))
    return exit_of(outcomes)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "outbox-rebuild", "Make tables anew from their topics; readers see the old ones until then."
    )
    batch_option(parser)
    parser.add_argument("--restart", action="store_true", help="drop what a rebuild that was stopped has done")
    return parser
