"""Compute, without locks or writes, the offsets that a run would read (`outbox-materialize --dry-run`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any

from pyspark.sql import SparkSession

from outbox_common.error_text import one_line
from outbox_events.errors import OutboxError
from outbox_spark.commands.exit_codes import Exit, exit_code, failure_fields
from outbox_spark.commands.run_each import attempt, stop_spark
from outbox_spark.jobs.model import MaterializeJob, PostgresTarget, ReadRange, Reporter, TableProgress
from outbox_spark.kafka.offset_ranges import ClusterUnreachableError, TopicAdmin, TopicDescription, resolve_range
from outbox_spark.runs.clients import Clients
from outbox_spark.runs.missed_tombstones import TombstoneRetention
from outbox_spark.session.run_session import run_session
from outbox_spark.sinks import open_table
from outbox_spark.sinks.postgres.connection import Connection, read_only_connection
from outbox_spark.sinks.postgres.progress import read_progress, server_time
from outbox_spark.sinks.postgres.statements import TableStatements

Connect = Callable[[PostgresTarget], AbstractContextManager[Connection]]


@dataclass(frozen=True)
class Preview:
    """What the next run of one table would read, or the error that it would raise."""

    job: MaterializeJob
    committed: TableProgress | None = None
    read_range: ReadRange | None = None
    missed_warning: str | None = None
    """Set if tombstones may have been missed. A run would report this warning and compare the table with the topic."""
    error: OutboxError | None = None
    new_partitions: Sequence[int] = ()
    commit_is_due: bool = False
    """Whether a run without new records would still commit `committed_at` (see TombstoneRetention.commit_is_due)."""

    @property
    def offset_count(self) -> int:
        """Number of offsets that a run would read."""
        return 0 if self.read_range is None else self.read_range.offset_count

    @property
    def has_work(self) -> bool:
        """Whether a run would read records, compare the table with the topic, or create the table."""
        if self.read_range is None:
            return False
        return self.committed is None or self.missed_warning is not None or not self.read_range.is_empty

    @property
    def is_unchanged(self) -> bool:
        """Whether a run would change nothing, neither the rows nor the progress."""
        if self.committed is None or self.has_work:
            return False
        return not (self.commit_is_due or self.committed.unknown_schemas)


def dry_run(jobs: Sequence[MaterializeJob], start_spark: Callable[[], SparkSession], report: Reporter) -> list[Preview]:
    """Return a preview of each table. Call `start_spark` at most once, and only if a job writes to a lake table."""
    spark = cache(start_spark)
    try:
        with Clients() as clients:
            return [
                attempt(job, report, partial(preview, job, spark, clients), partial(_failed, job), debug=False)
                for job in jobs
            ]
    finally:
        if spark.cache_info().currsize:
            stop_spark(spark())


def exit_of(previews: Sequence[Preview]) -> Exit:
    """Return the exit code of the command. Failures take precedence over pending work."""
    retryable = [preview.error.transient for preview in previews if preview.error is not None]
    return exit_code(retryable, has_findings=any(preview.has_work for preview in previews))


def _failed(job: MaterializeJob, error: OutboxError) -> Preview:
    return Preview(job, error=error)


def preview(
    job: MaterializeJob,
    spark: Callable[[], SparkSession],
    clients: Clients,
    connect: Connect = read_only_connection,
    topic: TopicDescription | None = None,
) -> Preview:
    """Return the preview of one table. Raises any OutboxError that a run would raise before reading records.

    `topic` is the description of the topic if it has been requested already.
    """
    committed, time = _read_progress(job, spark, connect)
    topic = topic or clients.admin(job.kafka).describe(job.topic)
    retention = TombstoneRetention(job, topic, committed, time, lambda: time)
    read_range = resolve_range(retention.topic, committed)
    retention.check_missed_tombstones(read_range)
    new_partitions = [] if committed is None else sorted(set(read_range.end) - set(committed.offsets))
    warning = retention.warning() if retention.may_miss_tombstones(read_range) else None
    return Preview(job, committed, read_range, warning, None, new_partitions, retention.commit_is_due)


@dataclass
class PlannedReads:
    """What is known before Spark starts."""

    unchanged: dict[int, ReadRange] = field(default_factory=dict)
    """The empty read range of each PostgreSQL table that a run would not change, by the index of its job."""
    unreachable: dict[int, ClusterUnreachableError] = field(default_factory=dict)
    """The error of each table whose brokers do not respond, by the index of its job. Each run would wait for them."""
    max_offsets: int = 0
    """Number of offsets that a run reads at most."""
    is_complete: bool = False
    """Whether `max_offsets` is known. After an error it is not: the run repeats the request, and reports the error."""


def planned_reads(jobs: Sequence[MaterializeJob]) -> PlannedReads:
    """Compare the offsets of all tables with their topics. The progress of a lake table is unknown without Spark."""
    planned = PlannedReads()
    with suppress(Exception), Clients() as clients, ExitStack() as opened:  # of any type, as in `attempt`
        connection = cache(lambda target: opened.enter_context(read_only_connection(target)))

        def connect(target: PostgresTarget) -> AbstractContextManager[Connection]:
            return nullcontext(connection(target))

        compares_topic = False
        for index, topic in sorted(_described_topics(jobs, clients, planned).items()):
            job = jobs[index]
            if not isinstance(job.target, PostgresTarget):
                # All offsets that the topic ever had, because a MERGE also reads the rows of removed records.
                planned.max_offsets += sum(topic.end_offsets.values())
                continue
            found = preview(job, _no_spark, clients, connect, topic)
            if found.read_range is not None and found.is_unchanged:
                planned.unchanged[index] = found.read_range
            planned.max_offsets += found.offset_count
            compares_topic |= found.missed_warning is not None
        planned.is_complete = not compares_topic
    return planned


def _described_topics(
    jobs: Sequence[MaterializeJob], clients: Clients, planned: PlannedReads
) -> dict[int, TopicDescription]:
    """Return the description of the topic of each job by its index, with the same requests for a cluster's topics.

    Jobs whose brokers do not respond are added to `planned` instead.
    """
    by_cluster: dict[TopicAdmin, dict[int, str]] = {}
    for index, job in enumerate(jobs):
        by_cluster.setdefault(clients.admin(job.kafka), {})[index] = job.topic
    described: dict[int, TopicDescription] = {}
    for admin, topics in by_cluster.items():
        try:
            found = admin.describe_all(sorted(set(topics.values())))
        except ClusterUnreachableError as error:
            planned.unreachable |= dict.fromkeys(topics, error)
        else:
            described |= {index: found[topic] for index, topic in topics.items()}
    return described


def _no_spark() -> SparkSession:
    raise AssertionError("the preview of a PostgreSQL table does not need Spark")


def _read_progress(
    job: MaterializeJob, spark: Callable[[], SparkSession], connect: Connect
) -> tuple[TableProgress | None, datetime]:
    """Return the table's progress, and the current time from the PostgreSQL server or, for lake tables, the driver."""
    if isinstance(job.target, PostgresTarget):
        with connect(job.target) as connection:  # without a lock, because a run may be active
            progress = read_progress(connection, TableStatements(job.target.schema, job.table))[1]
            return progress, server_time(connection)
    with run_session(spark(), job) as session:
        # The driver's clock is used, because the store's time is known only after a lease is written to the store.
        return open_table(session, job).committed(), datetime.now(UTC)


def as_json(previews: Sequence[Preview]) -> str:
    """Return the JSON text `{"dry_run": [...]}`, whose list has one entry per table."""
    return json.dumps({"dry_run": [_entry(preview) for preview in previews]}, indent=2)


def _entry(preview: Preview) -> dict[str, Any]:
    job, committed, error = preview.job, preview.committed, preview.error
    start, end = (preview.read_range.start, preview.read_range.end) if preview.read_range else ({}, {})
    return {
        **job.report_fields,
        "run": committed.run if committed else None,
        "committed_at": committed.committed_at.isoformat() if committed and committed.committed_at else None,
        "offsets": preview.offset_count,
        "partitions": {str(number): {"from": start[number], "to": end[number]} for number in sorted(end)},
        "new_partitions": list(preview.new_partitions),
        "missed_tombstones_possible": preview.missed_warning is not None,
        **failure_fields(error),
    }


def as_text(previews: Sequence[Preview]) -> str:
    """Return a line for each table, a line for each partition that is new or has offsets to read, and any warnings."""
    return "\n".join(one_line(line) for preview in previews for line in _lines(preview))


def _lines(preview: Preview) -> list[str]:
    if preview.error is not None or preview.read_range is None:
        return [f"{preview.job}: a run would fail; the error is on stderr"]
    amount = f"{preview.offset_count} offsets to read" if preview.offset_count else "nothing to read"
    lines = [f"{preview.job}: {_last_commit(preview.committed)}; {amount}"]
    for partition, end in sorted(preview.read_range.end.items()):
        start = preview.read_range.start[partition]
        suffix = ", a new partition" if partition in preview.new_partitions else ""
        if start != end or suffix:
            lines.append(f"  partition {partition}: {start} to {end}, {end - start} offsets{suffix}")
    if preview.missed_warning is not None:
        warning = preview.missed_warning.removeprefix(f"{preview.job}: ")
        lines.append(f"  {warning}; the run would compare the table with the topic")
    return lines


def _last_commit(committed: TableProgress | None) -> str:
    if committed is None:
        return "the table does not exist yet"
    time = committed.committed_at
    return f"commit {committed.run}" + (f" of {time.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" if time else "")
