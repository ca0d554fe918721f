"""Metrics as JSON lines: one for every batch that was committed, one for every run of a table.

Both kinds have the same keys; what a kind does not have is null. A reader that follows the file sees a line as soon
as its batch is committed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from pyspark.sql import SparkSession

from outbox_spark.errors import ConfigurationError, MaterializeError
from outbox_spark.jobs.model import MaterializeJob, Outcome, Progress, ReadRange, Status, offsets_json, time_json
from outbox_spark.kafka.ranges import describe
from outbox_spark.runs.apply_batch import Applied
from outbox_spark.session.stage_metrics import SparkWork

STDERR = "-"


@contextmanager
def opened(name: str | None, tell: Progress) -> Iterator[Metrics | None]:
    """Metrics into the file `name`, at its end; `-` is stderr, None is none. Raises ConfigurationError."""
    if name is None:
        yield None
    elif name == STDERR:
        yield Metrics(sys.stderr, tell)
    else:
        try:
            stream = Path(name).open("a", encoding="utf-8")  # noqa: SIM115 - closed below
        except OSError as error:
            message = f"cannot write the metrics file {name}: {error.strerror}"
            raise ConfigurationError(message, "name a file in a folder that exists and can be written") from None
        try:
            yield Metrics(stream, tell)
        finally:
            # What a full disk did not take is tried again by the close; it was told already.
            with suppress(OSError):
                stream.close()


class Metrics:
    """Writes the lines. That a line cannot be written is told once, and stops no run."""

    def __init__(self, stream: TextIO, tell: Progress) -> None:
        self._stream = stream
        self._tell = tell
        self._work: SparkWork | None = None
        self._batch = 0
        self._batch_started = time.monotonic()
        self._newest: datetime | None = None
        self._committed_at: datetime | None = None
        self._broken = False

    def attach(self, spark: SparkSession) -> None:
        """From now on lines have Spark's figures too."""
        self._work = SparkWork(spark)

    def begin(self) -> None:
        """A run of a table begins."""
        self._batch, self._batch_started = 0, time.monotonic()
        self._newest = self._committed_at = None

    def batch(self, job: MaterializeJob, applied: Applied, read: ReadRange, left: int) -> None:
        """A batch is committed; `left` offsets of the run are still to be read. What runs.OnBatch asks for."""
        now = time.monotonic()
        self._batch += 1
        self._newest = max(filter(None, [self._newest, applied.newest]), default=None)
        self._committed_at = applied.committed.committed_at
        written = applied.written
        self._write(
            job,
            "batch",
            {
                "batch": self._batch,
                "records": applied.records,
                "keys": applied.keys,
                "upserts": written.upserts,
                "deletes": written.deletes,
                "tombstones": written.tombstones,
                "quarantined": written.quarantined,
                "seconds": round(now - self._batch_started, 3),
                "from": offsets_json(read.start),
                "to": offsets_json(read.end),
                "lag": left,
                "newest": time_json(applied.newest),
                "spark": self._figures(),
            },
        )
        self._batch_started = time.monotonic()

    def run(self, job: MaterializeJob, outcome: Outcome) -> None:
        """A run of a table has ended, well or not."""
        failed = outcome.status is Status.FAILED
        self._write(
            job,
            "run",
            {
                "status": outcome.status,
                "batch": self._batch,
                **{name: getattr(outcome, name) for name in ("records", "keys", "upserts", "deletes", "tombstones")},
                "quarantined": outcome.quarantined,
                "seconds": outcome.seconds,
                "from": None if failed else offsets_json(outcome.offsets_from),
                "to": None if failed else offsets_json(outcome.offsets_to),
                "lag": None if failed else _lag(job, outcome.offsets_to),
                "newest": time_json(self._newest),
                "error": outcome.error,
                "transient": outcome.transient if failed else None,
                # What ran since the last batch: of a run that failed, what it did before it did.
                "spark": self._figures(),
            },
        )

    def _figures(self) -> dict[str, int] | None:
        if self._work is None:
            return None
        try:
            return self._work.since_last().to_dict()
        except Exception:  # Java may be what died, and figures are not worth a run
            return None

    def _write(self, job: MaterializeJob, event: str, values: Mapping[str, Any]) -> None:
        line = {
            "time": time_json(datetime.now(UTC)),
            "event": event,
            "aggregate": job.aggregate,
            "topic": job.topic,
            "target": job.target_name,
            "table": job.table,
            **dict.fromkeys(_KEYS),
            "committed_at": time_json(self._committed_at),
            **values,
        }
        try:
            self._stream.write(json.dumps(line) + "\n")
            self._stream.flush()
        except OSError as error:
            if not self._broken:
                self._tell(f"warning: metrics cannot be written: {error.strerror}")
            self._broken = True


_KEYS = (
    "status", "batch", "records", "keys", "upserts", "deletes", "tombstones", "quarantined", "seconds", "from", "to",
    "lag", "newest", "committed_at", "error", "transient", "spark",
)  # fmt: skip


def _lag(job: MaterializeJob, reached: Mapping[int, int]) -> int | None:
    """Offsets between where the table is and where the topic ends now; None when the broker does not say."""
    try:
        latest = describe(job.kafka, job.topic).latest
    except MaterializeError:
        return None
    return sum(max(0, end - reached.get(partition, 0)) for partition, end in latest.items())
