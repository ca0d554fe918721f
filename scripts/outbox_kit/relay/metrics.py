"""Write the metrics of one relay process to a file for the textfile collector of Prometheus' node exporter."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

from psycopg import sql

from outbox_events.errors import ConfigurationError
from outbox_kit.postgres.client import Connection
from outbox_kit.relay.rows import RowReader
from outbox_kit.results import Reporter

INTERVAL_S = 5.0
MAX_COUNTED = 100_000
"""Maximum number of pending rows to count, so that counting a large backlog does not delay its delivery."""
# The query has one subquery for each bucket, so that an index scan reads only the bucket's first entry.
BACKLOG = sql.SQL("""
    select (select count(*) from (
              select from unnest(%(held)s::int[], %(floors)s::bigint[]) as held (_bucket, _floor)
              join {outbox} on {bucket} = _bucket and {pending} and {order} >= _floor limit %(limit)s) x) as rows,
           coalesce(extract(epoch from now() at time zone 'UTC' - min(first.created_at)), 0)::float8 as seconds
    from unnest(%(held)s::int[], %(floors)s::bigint[]) as held (bucket, floor)
    cross join lateral (select {created_at} as created_at from {outbox}
                        where {bucket} = held.bucket and {pending} and {order} >= held.floor
                        order by {order} limit 1) as first
    where isfinite(first.created_at)""")
HELP = {
    "records_sent_total": "Records sent, excluding dead letters.",
    "dead_letters_total": "Dead letters sent.",
    "batches_total": "Kafka transactions committed.",
    "errors_total": "Errors of Kafka or PostgreSQL after which a session or a bucket was tried again.",
    "unread_rows_total": "Rows that were deleted before the relay read them.",
    "buckets": "Buckets whose lease the process holds.",
    "failing_buckets": "Leased buckets whose last batch could not be sent.",
    "pending_rows": f"Rows to send in the leased buckets, counted up to {MAX_COUNTED}.",
    "lag_seconds": "Age of the oldest row to send in the leased buckets.",
}


@dataclass
class Counters:
    """Counters since the start of the process."""

    sent: int = 0
    dead_letters: int = 0
    batches: int = 0
    errors: int = 0
    unread: int = 0


@dataclass(frozen=True)
class Backlog:
    """Leased and failing buckets of a process, their unsent rows, and the age of the oldest unsent row in seconds."""

    buckets: int = 0
    failing: int = 0
    rows: int = 0
    seconds: float = 0.0


def read_backlog(
    connection: Connection, reader: RowReader, held: Sequence[int], floors: Sequence[int], failing: int = 0
) -> Backlog:
    created_at = reader.utc(reader.tables.pipeline.source.columns.created_at)
    statement = BACKLOG.format(created_at=created_at, **reader.tables.names)
    parameters = {"held": list(held), "floors": list(floors), "limit": MAX_COUNTED}
    row = connection.execute(statement, parameters).fetchall()[0]
    return Backlog(len(held), failing, row["rows"], max(0.0, row["seconds"]))


class MetricsFile:
    """Writes the metrics at most once per INTERVAL_S. If the path is None, the metrics are not written.

    Raises ConfigurationError if the file cannot be created.
    """

    def __init__(self, path: Path | None, pipeline: str, counters: Counters, progress: Reporter) -> None:
        self._path, self._pipeline, self._counters, self._progress = path, pipeline, counters, progress
        self._due_at = 0.0
        try:
            self._replace(Backlog())
        except OSError as error:
            problem = f"cannot write the metrics file {path}: {error.strerror}"
            raise ConfigurationError(problem, "create its folder, or change --metrics-file") from None

    @property
    def is_due(self) -> bool:
        return self._path is not None and time.monotonic() >= self._due_at

    def write(self, backlog: Backlog) -> None:
        """Replace the file. An error is only reported, because delivery is more important than metrics."""
        self._due_at = time.monotonic() + INTERVAL_S
        try:
            self._replace(backlog)
        except OSError as error:
            self._progress(f"cannot write the metrics file {self._path}: {error.strerror}")

    def _replace(self, backlog: Backlog) -> None:
        if self._path is None:
            return
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        temporary.write_text(text(self._pipeline, self._counters, backlog))
        temporary.replace(self._path)


def text(pipeline: str, counters: Counters, backlog: Backlog) -> str:
    """Return the metrics in Prometheus' text format."""
    values = [*map(str, (*astuple(counters), backlog.buckets, backlog.failing, backlog.rows)), f"{backlog.seconds:.3f}"]
    lines = []
    for (name, description), value in zip(HELP.items(), values, strict=True):
        kind = "counter" if name.endswith("_total") else "gauge"
        lines += [f"# HELP outbox_relay_{name} {description}", f"# TYPE outbox_relay_{name} {kind}"]
        lines.append(f'outbox_relay_{name}{{pipeline="{pipeline}"}} {value}')
    return "\n".join(lines) + "\n"
