"""Write metrics as JSON Lines: one line after each committed batch, and one line after each run of a table.

All lines have the same keys. A key that does not apply to a line has the value null. Every line is flushed immediately.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from pyspark.sql import SparkSession

from outbox_events.errors import ConfigurationError, OutboxError
from outbox_spark.jobs.model import MaterializeJob, Outcome, ReadRange, Reporter, Status, offsets_json, time_json
from outbox_spark.kafka.offset_ranges import describe
from outbox_spark.runs.apply_batch import AppliedBatch
from outbox_spark.runs.clients import Clients
from outbox_spark.session.stage_metrics import StageMetrics, group_of

STDERR = "-"
_KEYS = (
    "status", "batch", "records", "keys", "upserts", "deletes", "tombstones", "quarantined", "seconds", "from", "to",
    "lag", "newest", "committed_at", "error", "transient", "spark",
)  # fmt: skip


@contextmanager
def open_metrics(name: str | None, report: Reporter) -> Iterator[Metrics | None]:
    """Yield Metrics that append to the file `name` (`-` for stderr), or None if `name` is None. Raises OutboxError."""
    if name is None:
        yield None
    elif name == STDERR:
        yield Metrics(sys.stderr, report)
    else:
        try:
            stream = Path(name).open("a", encoding="utf-8")  # noqa: SIM115 - closed below
        except OSError as error:
            message = f"cannot write the metrics file {name}: {error.strerror}"
            raise ConfigurationError(message, "specify a file that you can create or append to") from None
        try:
            yield Metrics(stream, report)
        finally:
            # If the disk is full, close() repeats the failed write, whose error has already been reported.
            with suppress(OSError):
                stream.close()


class Metrics:
    """Writes the metrics, also of several threads. A write error is reported once and does not stop a run."""

    def __init__(self, stream: TextIO, report: Reporter) -> None:
        self._stream = stream
        self._report = report
        self._lock = threading.Lock()
        self._stages: StageMetrics | None = None
        self._write_failed = False

    def attach(self, spark: SparkSession) -> None:
        """Add the figures of Spark's stages to all later lines."""
        self._stages = StageMetrics(spark)

    def write(self, job: MaterializeJob, event: str, values: Mapping[str, Any]) -> None:
        """Write one line. The keys that are not in `values` are null."""
        with self._lock:
            line = {
                "time": time_json(datetime.now(UTC)),
                "event": event,
                **job.report_fields,
                **dict.fromkeys(_KEYS),
                **values,
                "spark": self._stage_figures(job),
            }
            try:
                self._stream.write(json.dumps(line) + "\n")
                self._stream.flush()
            except OSError as error:
                if not self._write_failed:
                    self._report(f"warning: metrics cannot be written: {error.strerror}")
                self._write_failed = True

    def _stage_figures(self, job: MaterializeJob) -> dict[str, int] | None:
        """Return the figures of the job's stages since the previous line; None if Spark does not respond."""
        if self._stages is None:
            return None
        try:
            return self._stages.since_last(group_of(job))
        except Exception:  # the JVM may have ended; missing figures must not stop a run
            return None


class RunMetrics:
    """Metrics of one run of a table, which starts when the object is created."""

    def __init__(self, metrics: Metrics, job: MaterializeJob) -> None:
        self._metrics = metrics
        self._job = job
        self._batch, self._batch_started = 0, time.monotonic()
        self._newest_timestamp: datetime | None = None
        self._committed_at: datetime | None = None

    def write_batch(self, applied: AppliedBatch, read_range: ReadRange, lag: int) -> None:
        """Write the line for a committed batch; `lag` is the number of offsets that the run has not read yet."""
        now = time.monotonic()
        self._batch += 1
        self._newest_timestamp = max(filter(None, [self._newest_timestamp, applied.newest_timestamp]), default=None)
        self._committed_at = applied.committed.committed_at
        values = {
            "batch": self._batch,
            "records": applied.record_count,
            "keys": applied.key_count,
            **asdict(applied.written),
            "seconds": round(now - self._batch_started, 3),
            "from": offsets_json(read_range.start),
            "to": offsets_json(read_range.end),
            "lag": lag,
            "newest": time_json(applied.newest_timestamp),
            "committed_at": time_json(self._committed_at),
        }
        self._metrics.write(self._job, "batch", values)
        self._batch_started = time.monotonic()

    def write_run(self, outcome: Outcome, clients: Clients | None = None) -> None:
        """Write the line for the run, whether it succeeded or failed. Request the lag with `clients`, if passed."""
        failed = outcome.status is Status.FAILED
        counts = ("records", "keys", "upserts", "deletes", "tombstones", "quarantined")
        values = {
            "status": outcome.status,
            "batch": self._batch,
            **{name: getattr(outcome, name) for name in counts},
            "seconds": outcome.seconds,
            "from": None if failed else offsets_json(outcome.offsets_from),
            "to": None if failed else offsets_json(outcome.offsets_to),
            "lag": None if failed else _lag(self._job, outcome, clients),
            "newest": time_json(self._newest_timestamp),
            "committed_at": time_json(self._committed_at),
            "error": outcome.error,
            "transient": outcome.transient,
        }
        self._metrics.write(self._job, "run", values)


def _lag(job: MaterializeJob, outcome: Outcome, clients: Clients | None) -> int | None:
    """Return the number of offsets from the run's end to the end of the topic; None if the end cannot be requested.

    A run that found nothing new has just requested the end.
    """
    if outcome.status is Status.UNCHANGED:
        return 0
    try:
        topic = describe(job.kafka, job.topic) if clients is None else clients.admin(job.kafka).describe(job.topic)
    except OutboxError:
        return None
    return sum(max(0, end - outcome.offsets_to.get(partition, 0)) for partition, end in topic.end_offsets.items())
