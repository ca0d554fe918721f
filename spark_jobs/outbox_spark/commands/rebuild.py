"""The command `outbox-rebuild`: builds a table again from the beginning of its topic and replaces it in one step."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Sequence
from dataclasses import replace

from msgspec import structs
from pyspark.sql import SparkSession

from outbox_spark.commands.exit_codes import print_message, run_command
from outbox_spark.commands.options import add_batch_option, command_parser, selected_jobs
from outbox_spark.commands.run_each import for_each
from outbox_spark.commands.run_report import as_json, as_table, exit_of, failed_outcome
from outbox_spark.errors import OverlapError, RefusedError
from outbox_spark.jobs.model import MaterializeJob, MissedTombstones, Outcome, Progress, Status
from outbox_spark.kafka.offset_ranges import resolve
from outbox_spark.kafka.topic_access import Topic, topic_of
from outbox_spark.runs.materialize_table import BATCH_RECORDS, materialize
from outbox_spark.sinks import open_table

SHADOW_SUFFIX = "__rebuild"
_MAX_NAME_LENGTH = 45
"""Of a table, so that PostgreSQL has room for the name of its staging table."""


def rebuild(
    spark: SparkSession,
    job: MaterializeJob,
    progress: Progress,
    max_records: int = BATCH_RECORDS,
    *,
    restart: bool = False,
    topic: Topic | None = None,
) -> Outcome:
    """Materialize the topic into a shadow table, then replace the table by it. Raises OutboxKitError.

    Until the last step the table is unchanged and other runs may update it. An interrupted rebuild continues, unless
    `restart` is set.
    """
    topic = topic or topic_of(spark, job)
    shadow = shadow_of(job)
    _prepare(spark, job, shadow, topic, progress, restart=restart)
    first = materialize(spark, shadow, progress, max_records, topic=topic)
    # The lock excludes other runs from here on: readers must not see an older state than before. Where no lock
    # excludes them, replace_by raises OverlapError.
    with open_table(spark, job, progress) as table:
        rest = materialize(spark, shadow, progress, max_records, topic=topic)
        with open_table(spark, shadow, progress) as source:
            table.replace_by(source)
    progress(f"{job}: rebuilt and replaced")
    return replace(first.then(rest), table=job.table, status=Status.CHANGED)


def shadow_of(job: MaterializeJob) -> MaterializeJob:
    """Return the job of the shadow table. It always reconciles when tombstones were missed."""
    name = job.table + SHADOW_SUFFIX
    if len(name) > _MAX_NAME_LENGTH:
        digest = hashlib.sha256(job.table.encode()).hexdigest()[:8]
        name = f"{job.table[: _MAX_NAME_LENGTH - len(SHADOW_SUFFIX) - len(digest) - 1]}_{digest}{SHADOW_SUFFIX}"
    options = structs.replace(job.options, missed_tombstones=MissedTombstones.RECONCILE)
    return structs.replace(job, table=name, options=options)


def _prepare(
    spark: SparkSession, job: MaterializeJob, shadow: MaterializeJob, topic: Topic, progress: Progress, *, restart: bool
) -> None:
    """Drop a shadow that cannot be continued, and warn if the topic has more partitions than at first."""
    with open_table(spark, shadow, progress) as table:
        if restart:
            table.drop()
            return
        try:
            committed = table.committed()
            if committed is not None:
                resolve(topic.describe(), committed)
                progress(f"{job}: continuing an interrupted rebuild")
        except OverlapError:
            raise
        except RefusedError as error:
            progress(f"{job}: restarting an interrupted rebuild: {error.message}")
            table.drop()
    _warn_of_growth(spark, job, progress)


def _warn_of_growth(spark: SparkSession, job: MaterializeJob, progress: Progress) -> None:
    try:
        with open_table(spark, job, progress) as table:
            committed = table.committed()
    except OverlapError:
        return  # another run of the table, which ends before the rebuild does
    except RefusedError as error:
        progress(f"{job}: {error.message}; the rebuild resolves this")
        return
    if committed is not None and committed.partition_epoch > 0:
        progress(
            f"warning: {job}: partitions were added to the topic since the table was created. Keys that were deleted "
            "since then may have a live record in their old partition and be restored"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command: result to stdout, messages to stderr. Return an Exit."""
    options = _parser().parse_args(arguments)
    return run_command(lambda: _main(options), debug=options.debug)


def _main(options: argparse.Namespace) -> int:
    def work(spark: SparkSession, job: MaterializeJob) -> Outcome:
        return rebuild(spark, job, print_message, options.batch_records, restart=options.restart)

    outcomes = for_each(selected_jobs(options), print_message, work, failed_outcome, debug=options.debug)
    print(as_json(outcomes) if options.output == "json" else as_table(outcomes))
    return exit_of(outcomes)


def _parser() -> argparse.ArgumentParser:
    description = "Build tables again from their topics; readers see the old tables until the new ones are complete."
    parser = command_parser("outbox-rebuild", description)
    add_batch_option(parser)
    parser.add_argument("--restart", action="store_true", help="discard the progress of an interrupted rebuild")
    return parser
