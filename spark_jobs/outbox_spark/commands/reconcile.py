"""The command `outbox-reconcile`: tables compared with their topics, and with the source; mended on demand."""

from __future__ import annotations

import argparse
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack

from msgspec import structs
from pyspark.sql import SparkSession

from outbox_spark.commands.options import Exit, command_parser, exit_code, guarded, jobs_of, tell
from outbox_spark.commands.reconcile_report import Reconciled, Result, as_json, as_table, failed
from outbox_spark.commands.run_each import for_each
from outbox_spark.jobs.model import MaterializeJob, MissedTombstones, Progress
from outbox_spark.kafka.ranges import resolve
from outbox_spark.kafka.topic import Topic, topic_of
from outbox_spark.runs.compare_source import Sources, against_source
from outbox_spark.runs.compare_topic import DIFFERENCES, Kind, compare
from outbox_spark.runs.materialize_table import materialize
from outbox_spark.runs.repair import mend, not_mended
from outbox_spark.runs.retention import Upkeep, now
from outbox_spark.sinks import open_table

EXAMPLES = 10


def reconcile(
    spark: SparkSession,
    job: MaterializeJob,
    tell: Progress,
    *,
    repair: bool = False,
    examples: int = EXAMPLES,
    topic: Topic | None = None,
) -> Reconciled:
    """Compare one table with its topic; `repair` writes what differs. Raises OutboxKitError."""
    started = time.monotonic()
    topic = topic or topic_of(spark, job)
    if repair:
        _settle_debt(spark, job, topic, tell)
    with open_table(spark, job, tell) as table, ExitStack() as stack:
        registry = stack.enter_context(topic.registry())
        found = compare(job, table, topic, registry, stack, examples)
        counts: Mapping[Kind, int] = found.counts
        result = Result.DIFFERENT if any(counts[kind] for kind in DIFFERENCES) else Result.SAME
        repaired = 0
        if repair and result is Result.DIFFERENT:
            mend(table, found)
            left = not_mended(table, found)
            repaired = sum(counts[kind] for kind in DIFFERENCES) - sum(left.values())
            # What the guarded write leaves out as missing was deleted at a newer version, says the ledger.
            result = Result.DIFFERENT if left[Kind.ZOMBIE] else Result.MENDED
    tell(f"{job}: {found.records} records compared, {found.hops} hops more; {found.words or 'no key is in doubt'}")
    return Reconciled(
        aggregate=job.aggregate,
        topic=job.topic,
        target=job.target_name,
        table=job.table,
        result=result,
        counts=counts,
        examples=found.examples,
        records=found.records,
        hops=found.hops,
        scan=found.words,
        repaired=repaired,
        seconds=round(time.monotonic() - started, 3),
    )


def _settle_debt(spark: SparkSession, job: MaterializeJob, topic: Topic, tell: Progress) -> None:
    """A table that may miss tombstones is first brought up to date, with the comparison that such a run makes.

    Unread tombstones may vanish any time, so mending what is read now would not end the doubt.
    """
    with open_table(spark, job, tell) as table:
        asked_at = now()
        committed = table.committed()
        state = topic.describe()
    if committed is None or not Upkeep(job, state, committed, asked_at).missed(resolve(state, committed)):
        return
    options = structs.replace(job.options, missed_tombstones=MissedTombstones.RECONCILE)
    materialize(spark, structs.replace(job, options=options), tell, topic=topic)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Result on stdout, words on stderr. Returns one of command.Exit."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.job is not None and options.against_source:
        parser.error("--job and --against-source: a job file knows nothing of the source; give the pipeline file")
    return guarded(lambda: _main(options), debug=options.debug)


def _main(options: argparse.Namespace) -> int:
    jobs = jobs_of(options)
    sources: Sources = {}
    if options.against_source:
        sources = _sources(options, {job.aggregate for job in jobs})

    def work(spark: SparkSession, job: MaterializeJob) -> Reconciled:
        done = reconcile(spark, job, tell, repair=options.repair, examples=options.examples)
        if job.aggregate not in sources:
            return done
        return done.with_source(against_source(spark, job, sources[job.aggregate], tell, options.examples))

    results = for_each(jobs, tell, work, failed, debug=options.debug)
    print(as_json(results) if options.output == "json" else as_table(results))
    return exit_of(results)


def exit_of(results: Sequence[Reconciled]) -> Exit:
    """An error goes first: what was not compared may be different."""
    code = exit_code(result.transient for result in results if result.result is Result.FAILED)
    if code is not Exit.DONE:
        return code
    return Exit.FOUND if any(result.result is Result.DIFFERENT for result in results) else Exit.DONE


def _sources(options: argparse.Namespace, aggregates: Collection[str]) -> Sources:
    # Here, because with a job file the driver need not have the deploy tool and its packages.
    from outbox_spark.jobs.from_pipeline import load_sources  # noqa: PLC0415

    return load_sources(options.pipeline, options.environment, aggregates)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("outbox-reconcile", "Compare tables with their topics; exit code 3 when they differ.")
    add = parser.add_argument
    add("--repair", action="store_true", help="write what is missing or stale, delete what is deleted in the topic")
    add("--examples", type=int, default=EXAMPLES, metavar="N", help="keys to show of each kind")
    add("--against-source", action="store_true", help="also compare keys with the source table (backfill.table)")
    return parser
