"""Materialize all tables repeatedly in one Spark session until a signal arrives (`outbox-materialize --interval`)."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Protocol

from outbox_events.text import plural
from outbox_spark.commands.exit_codes import Exit
from outbox_spark.commands.run_report import failed_outcome
from outbox_spark.commands.workers import Workers
from outbox_spark.errors import OverlapError
from outbox_spark.jobs.model import MaterializeJob, Outcome, Reporter, Status
from outbox_spark.runs.materialize_table import NOTHING_NEW

MAX_FAILURES = 10
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopped(Exception):  # noqa: N818 - not an error
    """Raised when a run ends after a batch because a stop was requested."""


@contextmanager
def stopping_on_signals(stop: threading.Event, report: Reporter) -> Iterator[None]:
    """Set `stop` on the first SIGTERM or SIGINT, and restore the previous handlers to handle a second signal."""
    handlers = {signum: signal.getsignal(signum) for signum in _SIGNALS}

    def restore() -> None:
        for signum, handler in handlers.items():
            signal.signal(signum, handler)

    def handle_signal(signum: int, _frame: FrameType | None) -> None:
        restore()
        stop.set()
        report(f"{signal.Signals(signum).name}: stopping after the current batch; repeat the signal to stop now")

    for signum in _SIGNALS:
        signal.signal(signum, handle_signal)
    try:
        yield
    finally:
        restore()


class Attempts(Protocol):
    """Materializes tables."""

    def attempt(self, job: MaterializeJob, *raised: type[Exception]) -> Outcome:
        """Materialize one table. Errors are returned in the outcome; only Stopped and `raised` are raised."""


def attempt_of(job: MaterializeJob, *raised: type[Exception]) -> Callable[[Attempts], Outcome]:
    """Return a function that materializes one table with a worker (see Attempts.attempt)."""
    return lambda worker: worker.attempt(job, *raised)


@dataclass
class Rounds:
    """Materialize, in each round, every table that is not excluded. A table is identified by its index in `jobs`."""

    jobs: Sequence[MaterializeJob]
    workers: Workers[Attempts]
    stop: threading.Event
    """When this event is set, the process stops after the batch in progress."""
    report: Reporter
    interval: float
    """Seconds between the starts of two rounds. If a round takes longer, the next round starts immediately."""
    max_failures: int = MAX_FAILURES
    """Number of consecutive failures of one table after which the process ends."""
    fail_fast: bool = False
    """End the process at the first error that is not retryable, instead of excluding the table that failed."""
    driver_responds: Callable[[], bool] = lambda: True
    """Returns whether Spark's driver responds. This function is called after each failure."""
    last_outcomes: dict[int, Outcome] = field(default_factory=dict)
    _failure_counts: dict[int, int] = field(default_factory=dict)
    """Number of consecutive failures of each table."""
    _excluded: set[int] = field(default_factory=set)

    def run(self) -> Exit:
        """Run rounds until failures end the process or a stop is requested (code 4 if a table is excluded, else 0)."""
        tables = plural(len(self.jobs), "table")
        self.report(f"materializing {tables} every {self.interval:g} s; send SIGTERM or SIGINT to stop")
        while True:
            next_start = time.monotonic() + self.interval
            code = self._run_round()
            if code is not None:
                return code
            if self.stop.wait(max(0.0, next_start - time.monotonic())):
                return self._report_stop()

    def _run_round(self) -> Exit | None:
        code = None
        included = {
            index: attempt_of(job, OverlapError) for index, job in enumerate(self.jobs) if index not in self._excluded
        }
        for index, result in self.workers.call(included):
            try:
                self.last_outcomes[index] = result()
            except Stopped:
                message = "stopped after a commit; the next run continues at the committed offsets"
                self.report(f"{self.jobs[index]}: {message}")
                continue
            except OverlapError as error:  # not a failure: a comparison or a rebuild can take longer than many rounds
                self.last_outcomes.setdefault(index, failed_outcome(self.jobs[index], error))
                self.report(f"{self.jobs[index]}: {error.message}; trying again in the next rounds")
                continue
            if code is None:
                code = self._check_outcome(index)
            if code is not None:
                self.stop.set()
        return code

    def _check_outcome(self, index: int) -> Exit | None:
        """Return the exit code if the last outcome of a table ends the process, otherwise None."""
        outcome, job = self.last_outcomes[index], self.jobs[index]
        if outcome.status is not Status.FAILED:
            self._failure_counts.pop(index, None)
            return None
        if not self.driver_responds():
            if self.stop.is_set():  # the signal might have been sent to the JVM, too
                return self._report_stop()
            return self._report_end(Exit.FAILED, "Spark's driver does not respond")
        return self._count_failure(index, job) if outcome.transient else self._exclude(index, job)

    def _count_failure(self, index: int, job: MaterializeJob) -> Exit | None:
        count = self._failure_counts[index] = self._failure_counts.get(index, 0) + 1
        if count >= self.max_failures:
            return self._report_end(Exit.FAILED, f"{job} failed in {count} consecutive rounds")
        self.report(f"{job}: retrying next round ({count} consecutive failures, limit {self.max_failures})")
        return None

    def _exclude(self, index: int, job: MaterializeJob) -> Exit | None:
        self._excluded.add(index)
        if self.fail_fast:
            return self._report_end(Exit.REFUSED, f"the error of {job} is not retryable, and --fail-fast is set")
        if len(self._excluded) == len(self.jobs):
            return self._report_end(Exit.REFUSED, "every table has an error that is not retryable")
        reason = "its error is not retryable"
        self.report(f"{job}: excluded until the next start, because {reason}; the exit code will be {Exit.REFUSED:d}")
        return None

    def _report_end(self, code: Exit, reason: str) -> Exit:
        self.report(f"ending: {reason}")
        return code

    def _report_stop(self) -> Exit:
        if not self._excluded:
            self.report("stopped")
            return Exit.DONE
        names = ", ".join(str(self.jobs[index]) for index in sorted(self._excluded))
        self.report(f"stopped; tables that were excluded and are not up to date: {names}")
        return Exit.REFUSED


def without_repeats(report: Reporter) -> Reporter:
    """Return a reporter that omits a table's `nothing new` message if the table's previous message was the same."""
    previous: dict[str, str] = {}

    def report_once(message: str) -> None:
        table, _, text = message.partition(": ")
        if text != NOTHING_NEW or previous.get(table) != text:
            report(message)
        previous[table] = text

    return report_once
