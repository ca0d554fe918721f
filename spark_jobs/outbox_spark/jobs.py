"""The run and the command line: `outbox-materialize`, or spark-submit spark_jobs/materialize.py."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import StorageLevel

from outbox_spark.columns import columns_of
from outbox_spark.compatible import check_writer
from outbox_spark.configuration import load_jobs
from outbox_spark.decode import decode, types_of
from outbox_spark.errors import MaterializeError, RefusedError
from outbox_spark.export import export
from outbox_spark.latest import newest_per_key, ordering_of, summarize
from outbox_spark.model import Committed, MaterializeJob, Outcome, ReadRange, Status, Written
from outbox_spark.ranges import describe, resolve
from outbox_spark.registry import SchemaRegistry
from outbox_spark.report import as_json, as_table, failed, quarantine_warning
from outbox_spark.session import start_session
from outbox_spark.sinks import Batch, TargetTable, open_table
from outbox_spark.source import read_records
from outbox_spark.unexpected import explained

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NAMED_IDS = 5
Tell = Callable[[str], None]


def materialize(spark: SparkSession, job: MaterializeJob, tell: Tell) -> Outcome:
    """Bring one table to the end of its topic. Raises MaterializeError; the table is then as it was."""
    started = time.monotonic()
    with ExitStack() as stack:
        table = stack.enter_context(open_table(spark, job))
        committed = table.committed()
        read = resolve(describe(job.kafka, job.topic), committed)
        if committed is not None and read.is_empty:
            tell(f"{job}: nothing new")
            return _outcome(job, read, Status.UNCHANGED, started)
        registry = stack.enter_context(SchemaRegistry(job.registry))
        records = read_records(spark, job.kafka, read)
        outcome = apply(job, table, committed, read, records, registry)
    seconds = time.monotonic() - started
    tell(f"{job}: {outcome.records} records, {outcome.upserts} upserts, {outcome.deletes} deletes, {seconds:.1f} s")
    if outcome.quarantined:
        tell(quarantine_warning(outcome))
    return outcome


def apply(
    job: MaterializeJob,
    table: TargetTable,
    committed: Committed | None,
    read: ReadRange,
    records: DataFrame,
    registry: SchemaRegistry,
) -> Outcome:
    """Reduce, decode and write one range. `records` has the columns of source.RECORD_COLUMNS."""
    started = time.monotonic()
    subject = f"{job.topic}-value"
    reader = registry.latest(subject)
    columns = columns_of(reader, subject)
    table.check(columns, types_of(records.sparkSession, columns, reader))
    # Kept, because it is read more than once and a compacted topic may answer differently the second time.
    latest = newest_per_key(records, read.partition_epoch).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        summary = summarize(latest)
        ordering = ordering_of(job, summary, committed, records)
        writers = _writers(job, summary.schema_ids, reader, registry)
        rows = decode(latest, columns, reader, writers, table.limit)
        written = table.write(
            Batch(rows, summary.keys, columns, reader, committed, read.committed(committed, ordering))
        )
    finally:
        latest.unpersist()
    return _outcome(job, read, Status.CHANGED, started, summary.records, summary.keys, written)


def _writers(job: MaterializeJob, ids: Collection[int], reader: str, registry: SchemaRegistry) -> dict[int, str]:
    """The schemas behind the ids that occur, without the ids that the registry does not know."""
    found = {i: schema for i in sorted(ids) if (schema := registry.by_id(i)) is not None}
    if ids and not found:
        # A few unknown ids are poison; nothing but unknown ids is the wrong registry, or one restored from before.
        unknown = ", ".join(str(i) for i in sorted(ids)[:_NAMED_IDS]) + (", ..." if len(ids) > _NAMED_IDS else "")
        message = f"topic {job.topic}: the registry knows none of the schema ids that its records carry: {unknown}"
        raise RefusedError(message, "check registry.url, and whether the registry was restored from a backup")
    for i, schema in found.items():
        check_writer(schema, reader, f"schema {i} of topic {job.topic}")
    return found


def _outcome(
    job: MaterializeJob,
    read: ReadRange,
    status: Status,
    started: float,
    records: int = 0,
    keys: int = 0,
    written: Written | None = None,
) -> Outcome:
    written = written or Written(0, 0, 0, 0)
    return Outcome(
        aggregate=job.aggregate,
        topic=job.topic,
        target=job.target_name,
        table=job.table,
        status=status,
        records=records,
        keys=keys,
        upserts=written.upserts,
        deletes=written.deletes,
        tombstones=written.tombstones,
        quarantined=written.quarantined,
        seconds=round(time.monotonic() - started, 3),
        offsets_from=read.start,
        offsets_to=read.end,
    )


def run(
    jobs: Sequence[MaterializeJob], tell: Tell, *, debug: bool = False, export_to: Path | None = None
) -> list[Outcome]:
    """Run jobs one after another in one session. A job that fails does not keep the others from running."""
    tell("starting Spark")
    spark = start_session()
    try:
        outcomes = [_attempt(spark, job, tell, debug=debug) for job in jobs]
        if export_to is not None:
            # A table whose run failed may not be there at all.
            done = [job for job, out in zip(jobs, outcomes, strict=True) if out.status is not Status.FAILED]
            export(spark, done, export_to)
        return outcomes
    finally:
        spark.stop()


def _attempt(spark: SparkSession, job: MaterializeJob, tell: Tell, *, debug: bool) -> Outcome:
    try:
        return materialize(spark, job, tell)
    except Exception as error:  # whatever it is, the other tables still run
        if debug:
            tell(traceback.format_exc())
        known = explained(error)
        _explain(known, tell, str(job))
        return failed(job, known)


def _explain(error: MaterializeError, tell: Tell, where: str = "") -> None:
    tell(f"error: {where}: {error.message}" if where else f"error: {error.message}")
    if error.hint:
        tell(f"hint: {error.hint}")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Result on stdout, words on stderr. Returns 0, or 1 when a table was not brought up to date."""
    options = _parser().parse_args(arguments)
    try:
        jobs = load_jobs(options.pipeline, options.environment, aggregates=options.aggregate, targets=options.target)
        outcomes = run(jobs, _tell, debug=options.debug, export_to=options.export)
    except MaterializeError as error:
        if options.debug:
            traceback.print_exc()
        _explain(error, _tell)
        return 1
    print(as_json(outcomes) if options.output == "json" else as_table(outcomes))
    return 1 if any(outcome.status is Status.FAILED for outcome in outcomes) else 0


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    # argparse, not typer: a cluster's driver may have only what the job itself needs.
    parser = argparse.ArgumentParser(
        prog="outbox-materialize", description="Bring tables to the newest state of their topics."
    )
    add = parser.add_argument
    add("-p", "--pipeline", type=Path, default=Path("connectors/library.yaml"), help="pipeline file")
    add("-e", "--environment", default="local", help="environment: connectors/environments/NAME.yaml")
    add("--aggregate", action="append", default=[], help="only this aggregate; can be given again")
    add("--target", action="append", default=[], help="only this target; can be given again")
    add("--output", choices=("table", "json"), default="table", help="form of the result on stdout")
    add("--export", type=Path, metavar="DIR", help="afterwards write the rows of Delta tables there as JSON lines")
    add("--debug", action="store_true", help="show tracebacks")
    return parser
