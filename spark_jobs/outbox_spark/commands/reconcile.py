"""Compare tables with their topics and the source, and repair the tables on request (`outbox-reconcile`)."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from msgspec import structs
from pyspark.sql import SparkSession

from outbox_spark.commands.exit_codes import print_message, print_result, run_command
from outbox_spark.commands.options import command_parser, selected_jobs
from outbox_spark.commands.reconcile_report import (
    ComparisonResult,
    ReconciledTable,
    as_json,
    as_table,
    exit_of,
    failed_comparison,
)
from outbox_spark.commands.run_each import run_jobs
from outbox_spark.jobs.model import MaterializeJob, MissedTombstones, Reporter, SourceTable
from outbox_spark.kafka.offset_ranges import resolve_range
from outbox_spark.kafka.topic_access import Topic, topic_of
from outbox_spark.runs.compare_source import compare_with_source
from outbox_spark.runs.compare_topic import compare_with_topic
from outbox_spark.runs.materialize_table import materialize
from outbox_spark.runs.missed_tombstones import TombstoneRetention
from outbox_spark.runs.repair import count_unrepaired, repair_table
from outbox_spark.runs.row_differences import DIFFERENCES, REPAIRED, DifferenceKind
from outbox_spark.session.run_session import in_run_session
from outbox_spark.sinks import open_table

EXAMPLES = 10


@in_run_session
def reconcile(
    spark: SparkSession,
    job: MaterializeJob,
    report: Reporter,
    *,
    repair: bool = False,
    versions_only: bool = False,
    max_examples: int = EXAMPLES,
    topic: Topic | None = None,
) -> ReconciledTable:
    """Compare one table with its topic, and repair the differences if `repair` is set. Raises OutboxError."""
    started = time.monotonic()
    topic = topic or topic_of(spark, job)
    if repair:
        _catch_up_if_tombstones_missed(spark, job, topic, report)
    with open_table(spark, job, report) as table, topic.open_registry() as registry, ExitStack() as stack:
        comparison = compare_with_topic(
            job, table, topic, registry, stack, max_examples, compare_fields=not versions_only
        )
        counts = comparison.counts
        result = ComparisonResult.DIFFERENT if any(counts[kind] for kind in DIFFERENCES) else ComparisonResult.SAME
        repaired_count = 0
        if repair and result is ComparisonResult.DIFFERENT:
            repair_table(table, comparison)
            unrepaired = count_unrepaired(table, comparison, stack)
            repaired_count = sum(counts[kind] for kind in REPAIRED) - sum(unrepaired.values())
            # Keys that are still missing have a newer tombstone in the ledger, so their records were not applied.
            still_different = unrepaired[DifferenceKind.ZOMBIE] + unrepaired[DifferenceKind.DIFFERENT]
            if not still_different and not counts[DifferenceKind.DUPLICATE]:
                result = ComparisonResult.REPAIRED
    scan_result = comparison.scan_result or "every row has a record in the topic"
    if counts[DifferenceKind.DUPLICATE]:
        report(f"warning: {job}: keys have more than one row; only `outbox-rebuild` removes the surplus rows")
    report(f"{job}: {comparison.record_count} records compared, {comparison.pass_count} more passes; {scan_result}")
    return ReconciledTable(
        job,
        result,
        counts=counts,
        examples=comparison.examples,
        column_counts=comparison.column_counts,
        uncompared=comparison.uncompared,
        record_count=comparison.record_count,
        pass_count=comparison.pass_count,
        scan_result=comparison.scan_result,
        repaired_count=repaired_count,
        seconds=round(time.monotonic() - started, 3),
    )


def _catch_up_if_tombstones_missed(spark: SparkSession, job: MaterializeJob, topic: Topic, report: Reporter) -> None:
    """If the table may have missed tombstones, materialize the table, which also compares the table with its topic.

    Unread tombstones can be compacted away at any time, so a repair up to the committed offsets would be incomplete.
    """
    with open_table(spark, job, report) as table:
        committed = table.committed()
        retention = TombstoneRetention.start(job, table, topic, committed)
        if committed is None or not retention.may_miss_tombstones(resolve_range(retention.topic, committed)):
            return
    options = structs.replace(job.options, missed_tombstones=MissedTombstones.RECONCILE)
    materialize(spark, structs.replace(job, options=options), report, topic=topic)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, which prints its result to stdout and messages to stderr. Return its exit code (an Exit)."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.job is not None and options.against_source:
        parser.error("--against-source: not allowed with --job, because a job file does not describe the source")
    return run_command(lambda: _main(options), debug=options.debug)


def _main(options: argparse.Namespace) -> int:
    jobs = selected_jobs(options)
    sources: Mapping[str, SourceTable] = {}
    if options.against_source:
        # Imported only here, because a driver that reads a job file does not need the packages of outbox_kit.
        from outbox_spark.jobs.from_pipeline import load_sources  # noqa: PLC0415

        sources = load_sources(options.pipeline, options.environment, {job.aggregate for job in jobs})

    def work(spark: SparkSession, job: MaterializeJob) -> ReconciledTable:
        result = reconcile(
            spark,
            job,
            print_message,
            repair=options.repair,
            versions_only=options.versions_only,
            max_examples=options.examples,
        )
        if job.aggregate not in sources:
            return result
        source = sources[job.aggregate]
        with topic_of(spark, job).open_registry() as registry:
            schemas = None if options.versions_only else registry
            differences = compare_with_source(spark, job, source, print_message, options.examples, schemas)
        return result.with_source(differences)

    results = run_jobs(jobs, print_message, work, failed_comparison, debug=options.debug)
    print_result(as_json(results) if options.output == "json" else as_table(results))
    return exit_of(results)


def _parser() -> argparse.ArgumentParser:
    description = "Compare tables with their topics, column by column. The exit code is 3 if there are differences."
    parser = command_parser("outbox-reconcile", description)
    add = parser.add_argument
    add(
        "--repair",
        action="store_true",
        help="write rows that are missing, stale or different, and delete rows whose keys are deleted in the topic",
    )
    add("--versions-only", action="store_true", help="compare keys, versions and metadata columns, but no fields")
    add(
        "--examples",
        type=int,
        default=EXAMPLES,
        metavar="N",
        help="maximum number of keys to print for each kind of difference; default %(default)s",
    )
    add("--against-source", action="store_true", help="also compare the keys with those in backfill.table")
    return parser
