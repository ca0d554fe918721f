"""What a run would read, without running it: no lock, no write; for PostgreSQL without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from functools import partial
from typing import Any

import psycopg
from pyspark.sql import SparkSession

from outbox_spark.commands.options import Exit, exit_code
from outbox_spark.commands.run_each import attempt
from outbox_spark.errors import OutboxKitError
from outbox_spark.jobs.model import Committed, MaterializeJob, PostgresTarget, Progress, ReadRange
from outbox_spark.kafka.ranges import describe, resolve
from outbox_spark.runs.retention import Upkeep
from outbox_spark.sinks import open_table
from outbox_spark.sinks.postgres.connection import connection_parameters, unreachable
from outbox_spark.sinks.postgres.progress import read_progress
from outbox_spark.sinks.postgres.statements import Statements

_READ_ONLY = "-c default_transaction_read_only=on"


@dataclass(frozen=True)
class Preview:
    """What the next run of one table would read."""

    job: MaterializeJob
    committed: Committed | None = None
    read: ReadRange | None = None
    missed: str | None = None
    """What a run would warn of, when tombstones may have been missed: it would compare the table with the topic."""
    error: OutboxKitError | None = None
    new_partitions: Sequence[int] = field(default_factory=tuple)

    @property
    def offsets(self) -> int:
        """How many offsets would be read; records are fewer, where the topic was compacted."""
        return 0 if self.read is None else sum(end - self.read.start[p] for p, end in self.read.end.items())

    @property
    def has_work(self) -> bool:
        """Whether a run would read: a table that is not there yet is made, of an empty topic too."""
        if self.read is None:
            return False
        return self.committed is None or self.missed is not None or not self.read.is_empty


def dry_run(jobs: Sequence[MaterializeJob], start: Callable[[], SparkSession], tell: Progress) -> list[Preview]:
    """Look at every table; `start` is called when the first one needs Spark."""
    session: list[SparkSession] = []

    def spark() -> SparkSession:
        if not session:
            tell("starting Spark: only it can read how far a lake table is")
            session.append(start())
        return session[0]

    try:
        return [_looked(job, spark, tell) for job in jobs]
    finally:
        for each in session:
            each.stop()


def exit_of(previews: Sequence[Preview]) -> Exit:
    """An error goes first, the one that needs a person before all; 3: there is something to read."""
    code = exit_code(preview.error.transient for preview in previews if preview.error is not None)
    if code is not Exit.DONE:
        return code
    return Exit.FOUND if any(preview.has_work for preview in previews) else Exit.DONE


def _looked(job: MaterializeJob, spark: Callable[[], SparkSession], tell: Progress) -> Preview:
    def failed(error: OutboxKitError) -> Preview:
        return Preview(job, error=error)

    return attempt(str(job), tell, partial(preview, job, spark), failed, debug=False)


def preview(job: MaterializeJob, spark: Callable[[], SparkSession]) -> Preview:
    """Look at one table and its topic. Raises OutboxKitError, also for what a run would refuse before it reads."""
    committed = _committed(job, spark)
    upkeep = Upkeep(job, describe(job.kafka, job.topic), committed)
    read = resolve(upkeep.topic, committed)
    upkeep.check(read)
    known = read.end if committed is None else committed.offsets
    added = sorted(set(read.end) - set(known))
    return Preview(job, committed, read, upkeep.warning() if upkeep.missed(read) else None, None, added)


def _committed(job: MaterializeJob, spark: Callable[[], SparkSession]) -> Committed | None:
    if isinstance(job.target, PostgresTarget):
        return _in_postgres(job.target, job.table)
    with open_table(spark(), job) as table:
        return table.committed()


def _in_postgres(target: PostgresTarget, table: str) -> Committed | None:
    """Read the progress without the lock of the sink, because a run may be active."""
    try:
        with psycopg.connect(**connection_parameters(target), options=_READ_ONLY) as connection:
            return read_progress(connection, Statements(target.schema, table))[1]
    except psycopg.Error as error:
        raise unreachable(target, error) from error


def as_json(previews: Sequence[Preview]) -> str:
    """`{"dry_run": [...]}`, one entry per table."""
    return json.dumps({"dry_run": [_entry(preview) for preview in previews]}, indent=2)


def _entry(found: Preview) -> dict[str, Any]:
    job, committed, error = found.job, found.committed, found.error
    partitions = {} if found.read is None else found.read.end
    start = {} if found.read is None else found.read.start
    return {
        "aggregate": job.aggregate,
        "topic": job.topic,
        "target": job.target_name,
        "table": job.table,
        "run": committed.run if committed else None,
        "committed_at": committed.committed_at.isoformat() if committed and committed.committed_at else None,
        "offsets": found.offsets,
        "partitions": {str(p): {"from": start[p], "to": partitions[p]} for p in sorted(partitions)},
        "new_partitions": list(found.new_partitions),
        "missed_tombstones_possible": found.missed is not None,
        "error": error.message if error else None,
        "hint": error.hint if error else None,
        "transient": error.transient if error else None,
    }


def as_text(previews: Sequence[Preview]) -> str:
    """For people: a line per table, a line per partition with something to read, and what is remarkable."""
    return "\n".join(line for preview in previews for line in _lines(preview))


def _lines(found: Preview) -> list[str]:
    if found.error is not None or found.read is None:
        return [f"{found.job}: would fail, see above"]
    lines = [f"{found.job}: {_where(found.committed)}; {_amount(found)}"]
    for partition, end in sorted(found.read.end.items()):
        start = found.read.start[partition]
        new = ", a new partition" if partition in found.new_partitions else ""
        if start != end or new:
            lines.append(f"  partition {partition}: {start} to {end}, {end - start} offsets{new}")
    if found.missed is not None:
        lines.append(f"  {found.missed.removeprefix(f'{found.job}: ')}; the run would compare the table with the topic")
    return lines


def _where(committed: Committed | None) -> str:
    if committed is None:
        return "no table yet"
    time = committed.committed_at
    return f"run {committed.run}" + (f" of {time.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" if time else "")


def _amount(found: Preview) -> str:
    return f"{found.offsets} offsets to read" if found.offsets else "nothing to read"
