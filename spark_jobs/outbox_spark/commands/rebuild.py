"""Rebuild tables from the start of their topics and replace each table's rows in one step (`outbox-rebuild`)."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from msgspec import structs
from pyspark.sql import SparkSession

from outbox_events.errors import RefusedError
from outbox_spark.commands.exit_codes import print_message, print_result, run_command
from outbox_spark.commands.options import add_batch_option, command_parser, selected_jobs
from outbox_spark.commands.run_each import run_jobs
from outbox_spark.commands.run_report import as_json, as_table, exit_of, failed_outcome
from outbox_spark.errors import ForeignTableError, OverlapError
from outbox_spark.jobs.model import MaterializeJob, MissedTombstones, Outcome, Reporter, Status
from outbox_spark.kafka.offset_ranges import TopicDescription, resolve_range
from outbox_spark.kafka.topic_access import Topic, topic_of
from outbox_spark.runs.materialize_table import materialize
from outbox_spark.session.run_session import in_run_session
from outbox_spark.sinks import open_table
from outbox_spark.sinks.target_table import TargetTable

SHADOW_SUFFIX = "__rebuild"
MAX_LOST_PERCENT = 5
ANY_LOSS = 100
_MAX_SHADOW_NAME_LENGTH = 45
"""Maximum length of a shadow table's name. PostgreSQL limits the longer name of the shadow table's staging table."""


@in_run_session
def rebuild(
    spark: SparkSession,
    job: MaterializeJob,
    report: Reporter,
    max_records: int | None = None,
    *,
    restart: bool = False,
    topic: Topic | None = None,
    max_lost_percent: float = ANY_LOSS,
    new_topic: bool = True,
) -> Outcome:
    """Materialize the topic into a shadow table, then replace the table's rows with the shadow table's rows.

    Other runs may update the table until the last step. An interrupted rebuild is continued, unless `restart` is set.
    Raises OutboxError, for example RefusedError if the table would lose more than `max_lost_percent` of its rows or,
    unless `new_topic` is set, if the table was written from another topic.
    """
    topic = topic or topic_of(spark, job)
    expected = None if new_topic else topic.describe()
    with suppress(OverlapError), open_table(spark, job) as table:  # a locked table is compared at the end
        _refuse_other_topic(job, table, expected)
    shadow = shadow_of(job)
    _prepare_shadow(spark, job, shadow, topic, report, restart=restart)
    first_outcome = materialize(spark, shadow, report, max_records, topic=topic)
    # From here on, the lock excludes other runs, so that the shadow table is not older than the table. If another run
    # commits despite the lock, replace_by raises OverlapError.
    with open_table(spark, job, report) as table:
        _refuse_other_topic(job, table, expected)
        last_outcome = materialize(spark, shadow, report, max_records, topic=topic)
        with open_table(spark, shadow, report) as shadow_table:
            if max_lost_percent < ANY_LOSS:
                _refuse_excessive_loss(job, table, shadow_table, max_lost_percent)
            table.replace_by(shadow_table)
    report(f"{job}: rebuilt; the content of the table was replaced")
    return replace(first_outcome.plus(last_outcome), table=job.table, status=Status.CHANGED)


def _refuse_foreign_shadow(job: MaterializeJob, shadow: TargetTable) -> None:
    """Raise ForeignTableError for a table with the shadow's name that no rebuild of this job has created."""
    written = _written_topic(shadow)
    if written is not None and written[0] != job.topic:
        message = f"table {shadow_of(job).table} was written from topic {written[0]}, so it may not be a shadow table"
        raise ForeignTableError(message, "drop it if it is left from an interrupted rebuild, then run again")


def _refuse_other_topic(job: MaterializeJob, table: TargetTable, expected: TopicDescription | None) -> None:
    """Raise ForeignTableError if outbox-materialize did not create the table.

    Raise RefusedError if another topic than `expected` was written to it: the target may be that of another
    environment. If `expected` is None, any topic is accepted.
    """
    written = _written_topic(table)
    if expected is not None and written not in (None, (expected.name, expected.topic_id)):
        name, topic_id = written
        message = f"{job}: the table was written from topic {name} with id {topic_id}, "
        message += f"not from {expected.name} with id {expected.topic_id}"
        hint = "check `kafka` and the target in the environment file; if the topic was created again, run"
        raise RefusedError(message, f"{hint} `outbox-rebuild --new-topic`")


def _written_topic(table: TargetTable) -> tuple[str, str] | None:
    """Return the topic that was written; None for a new table, and for a table of another layout version."""
    try:
        return table.written_topic()
    except ForeignTableError:
        raise
    except RefusedError:
        return None


def _refuse_excessive_loss(job: MaterializeJob, table: TargetTable, shadow: TargetTable, max_percent: float) -> None:
    """Raise RefusedError if the topic has far fewer states than the table, for example if the topic was recreated."""
    try:
        exists = table.committed() is not None
    except RefusedError:
        return  # the row count of a table that was restored or rolled back is not comparable
    before = table.current_versions().count() if exists else 0
    after = shadow.current_versions().count() if before else 0
    if before - after > before * max_percent / ANY_LOSS:
        message = f"{job}: the rebuild would reduce the table from {before} to {after} rows; the table is unchanged"
        hint = "make sure that the topic contains every aggregate (`outbox backfill`), or accept the loss with"
        raise RefusedError(message, f"{hint} --max-lost-percent {ANY_LOSS}")


def shadow_of(job: MaterializeJob) -> MaterializeJob:
    """Return the shadow table's job: the same job with another table name and `missed_tombstones: reconcile`."""
    name = job.table + SHADOW_SUFFIX
    if len(name) > _MAX_SHADOW_NAME_LENGTH:
        digest = hashlib.sha256(job.table.encode()).hexdigest()[:8]
        name = f"{job.table[: _MAX_SHADOW_NAME_LENGTH - len(SHADOW_SUFFIX) - len(digest) - 1]}_{digest}{SHADOW_SUFFIX}"
    options = structs.replace(job.options, missed_tombstones=MissedTombstones.RECONCILE)
    return structs.replace(job, table=name, options=options)


def _prepare_shadow(
    spark: SparkSession, job: MaterializeJob, shadow: MaterializeJob, topic: Topic, report: Reporter, *, restart: bool
) -> None:
    """Drop the shadow table if the rebuild must restart or cannot continue. Otherwise warn about added partitions."""
    with open_table(spark, shadow, report) as table:
        _refuse_foreign_shadow(job, table)
        if restart:
            table.drop()
            return
        try:
            committed = table.committed()
            if committed is not None:
                resolve_range(topic.describe(), committed)
                report(f"{job}: continuing an interrupted rebuild")
        except OverlapError:
            raise
        except RefusedError as error:
            report(f"{job}: restarting an interrupted rebuild: {error.message}")
            table.drop()
    _warn_of_added_partitions(spark, job, report)


def _warn_of_added_partitions(spark: SparkSession, job: MaterializeJob, report: Reporter) -> None:
    try:
        with open_table(spark, job, report) as table:
            committed = table.committed()
    except OverlapError:
        return  # another run has locked the table, so the warning is omitted
    except RefusedError as error:
        report(f"{job}: {error.message}; the rebuild resolves this")
        return
    if committed is not None and committed.partition_epoch > 0:
        report(
            f"warning: {job}: partitions were added to the topic since the table was created. Rows of keys that were "
            "deleted since then may reappear, because the previous partition of a key may still have a live record"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, which prints its result to stdout and messages to stderr. Return its exit code (an Exit)."""
    options = _parser().parse_args(arguments)
    return run_command(lambda: _main(options), debug=options.debug)


def _main(options: argparse.Namespace) -> int:
    def work(spark: SparkSession, job: MaterializeJob) -> Outcome:
        limit, new_topic = options.max_lost_percent, options.new_topic
        max_records, restart = options.batch_records, options.restart
        return rebuild(
            spark, job, print_message, max_records, restart=restart, max_lost_percent=limit, new_topic=new_topic
        )

    outcomes = run_jobs(selected_jobs(options), print_message, work, failed_outcome, debug=options.debug)
    print_result(as_json(outcomes) if options.output == "json" else as_table(outcomes))
    return exit_of(outcomes)


def _percent(text: str) -> float:
    value = float(text)
    if not 0 <= value <= ANY_LOSS:
        raise argparse.ArgumentTypeError("must be from 0 to 100")
    return value


def _parser() -> argparse.ArgumentParser:
    description = "Rebuild tables from their topics. Readers see the previous rows until the rebuilt rows are complete."
    parser = command_parser("outbox-rebuild", description)
    add_batch_option(parser)
    parser.add_argument(
        "--restart", action="store_true", help="discard an interrupted rebuild instead of continuing it"
    )
    parser.add_argument(
        "--new-topic", action="store_true", help="accept a topic that was created again, or is on another cluster"
    )
    percent_help = "refuse to replace a table that would lose more than N percent of its rows; default %(default)s"
    parser.add_argument("--max-lost-percent", type=_percent, default=MAX_LOST_PERCENT, metavar="N", help=percent_help)
    return parser
