"""Round after round in one warm session, until a signal."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from outbox_spark.commands.options import Exit
from outbox_spark.jobs.model import MaterializeJob, Outcome, Progress, Status

MAX_FAILURES = 10
_SIGNALS = (signal.SIGTERM, signal.SIGINT)

Attempt = Callable[[MaterializeJob], Outcome]
"""Runs one table. An error is in the outcome; raises Stopped only."""


class Stopped(Exception):  # noqa: N818 - no error: somebody asked for it
    """A run that ended after a batch, because the process was asked to stop."""


class Stop:
    """Whether the process was asked to stop."""

    def __init__(self) -> None:
        self._event = threading.Event()

    @property
    def asked(self) -> bool:
        """By a signal, or by ask()."""
        return self._event.is_set()

    def ask(self) -> None:
        """Stop after the batch in progress."""
        self._event.set()

    def after_batch(self) -> None:
        """Raise Stopped when asked to: a batch is committed, and the next run goes on from there."""
        if self.asked:
            raise Stopped

    def wait(self, seconds: float) -> bool:
        """Wait so long; True at once when asked to stop."""
        return self._event.wait(max(0.0, seconds))


@contextmanager
def stopping_on_signals(stop: Stop, tell: Progress) -> Iterator[None]:
    """The first SIGTERM or SIGINT asks to stop; a second one does what it does without this."""
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def asked(number: int, _: FrameType | None) -> None:
        restore()
        stop.ask()
        tell(f"{signal.Signals(number).name}: stopping after the batch in progress; once more stops at once")

    for number in _SIGNALS:
        signal.signal(number, asked)
    try:
        yield
    finally:
        restore()


@dataclass(frozen=True)
class Rules:
    """How rounds follow one another, and when they end."""

    interval: float
    """Seconds from the begin of a round to that of the next; a round that takes longer is followed at once."""
    max_failures: int = MAX_FAILURES
    """So many failures of one table in a row end the process."""
    fail_fast: bool = False
    """End at the first error that trying again cannot mend, instead of leaving its table out."""


@dataclass
class Rounds:
    """The state of one process: what came last of each table, which are left out."""

    jobs: Sequence[MaterializeJob]
    attempt: Attempt
    rules: Rules
    stop: Stop
    tell: Progress
    alive: Callable[[], bool] = lambda: True
    """Whether Spark is still there; asked after a failure."""
    last: dict[int, Outcome] = field(default_factory=dict)
    """By number of the job: its newest outcome."""
    _in_a_row: dict[int, int] = field(default_factory=dict)
    _left_out: set[int] = field(default_factory=set)

    def run(self) -> Exit:
        """Rounds until a signal (0, or 4 when a table was left out), or until going on makes no sense."""
        self.tell(f"{_tables(len(self.jobs))}, a round every {self.rules.interval:g} s; SIGTERM or SIGINT ends it")
        while True:
            due = time.monotonic() + self.rules.interval
            ended = self._round()
            if ended is not None:
                return ended
            if self.stop.wait(due - time.monotonic()):
                return self._stopped()

    def _round(self) -> Exit | None:
        for number, job in enumerate(self.jobs):
            if self.stop.asked:
                return None
            if number in self._left_out:
                continue
            try:
                outcome = self.attempt(job)
            except Stopped:
                self.tell(f"{job}: stopped after a batch; the next run goes on from there")
                return None
            self.last[number] = outcome
            ended = self._judged(number, job, outcome)
            if ended is not None:
                return ended
        return None

    def _judged(self, number: int, job: MaterializeJob, outcome: Outcome) -> Exit | None:
        """What a failure means to the process; None: go on."""
        if outcome.status is not Status.FAILED:
            self._in_a_row.pop(number, None)
            return None
        if not self.alive():
            self.tell("ending: Spark's driver is gone")
            return Exit.FAILED
        if outcome.transient:
            return self._failed_again(number, job)
        self._left_out.add(number)
        if self.rules.fail_fast:
            self.tell(f"ending: {job} needs a person, and --fail-fast is given")
            return Exit.REFUSED
        if len(self._left_out) == len(self.jobs):
            self.tell("ending: every table needs a person")
            return Exit.REFUSED
        self.tell(f"{job}: left out from now on, it needs a person; the exit code will be {Exit.REFUSED:d}")
        return None

    def _failed_again(self, number: int, job: MaterializeJob) -> Exit | None:
        count = self._in_a_row[number] = self._in_a_row.get(number, 0) + 1
        if count < self.rules.max_failures:
            self.tell(f"{job}: tried again in the next round ({count} of {self.rules.max_failures} failures in a row)")
            return None
        self.tell(f"ending: {job} failed {count} times in a row")
        return Exit.FAILED

    def _stopped(self) -> Exit:
        if not self._left_out:
            self.tell("stopped")
            return Exit.DONE
        names = ", ".join(str(self.jobs[number]) for number in sorted(self._left_out))
        self.tell(f"stopped; left out and not up to date: {names}")
        return Exit.REFUSED


def without_repeats(tell: Progress) -> Progress:
    """`nothing new` is told once for each table, until it has something new: not in every round."""
    told: set[str] = set()

    def quiet(text: str) -> None:
        where, _, what = text.partition(": ")
        if what == "nothing new" and text in told:
            return
        told.discard(f"{where}: nothing new")
        told.add(text) if what == "nothing new" else None
        tell(text)

    return quiet


def _tables(count: int) -> str:
    return "1 table" if count == 1 else f"{count} tables"
