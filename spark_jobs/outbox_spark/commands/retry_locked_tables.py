"""Runs of several tables beside another driver: tables that it has locked are tried again after the other tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from outbox_spark.errors import OverlapError
from outbox_spark.jobs.model import MaterializeJob, Outcome, Reporter

WAIT_SECONDS = 60.0
"""Time for which the command waits for other runs, after it has tried every table."""
POLL_SECONDS = 2.0

Attempt = Callable[[MaterializeJob], Outcome]


def run_all(
    jobs: Sequence[MaterializeJob], attempt: Attempt, attempt_or_overlap: Attempt, report: Reporter
) -> list[Outcome]:
    """Return the outcome of each job, in order.

    `attempt` returns every error in the outcome; `attempt_or_overlap` raises OverlapError. Two drivers that start with
    the same tables can each be refused a table. The table is tried again when the other run has ended; then this run
    reads what is left.
    """
    outcomes: dict[int, Outcome] = {}
    locked = list(range(len(jobs)))
    deadline: float | None = None
    while locked:
        is_last_attempt = deadline is not None and time.monotonic() >= deadline
        tried, locked = locked, []
        for index in tried:
            try:
                outcomes[index] = (attempt if is_last_attempt else attempt_or_overlap)(jobs[index])
            except OverlapError as error:
                if deadline is None:
                    report(f"{jobs[index]}: {error.message}; it is tried again after the other tables")
                locked.append(index)
        if deadline is None and locked:
            deadline = time.monotonic() + WAIT_SECONDS
            names = ", ".join(str(jobs[index]) for index in locked)
            report(f"waiting at most {WAIT_SECONDS:g} s for other runs of: {names}")
        elif locked:
            time.sleep(POLL_SECONDS)
    return [outcomes[index] for index in range(len(jobs))]
