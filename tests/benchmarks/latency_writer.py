"""Writes outbox rows at a fixed rate, one per transaction, in a process of its own.

Open loop: the time of each transaction is fixed before the first one. One that the system delays is written late, and
none after it is left out or moved, so a stall meets as many transactions as it would meet in production.
"""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass
from uuid import uuid4

import psycopg

SESSIONS = 32
# A thread whose COMMIT has returned must not wait long for the interpreter.
SWITCH_SECONDS = 0.0002
INSERT = (
    "insert into bench_event (id, aggregate_type, aggregate_id, event_type, payload) "
    "values (%s, 'book', %s, 'book_changed', bench_payload(%s))"
)


@dataclass(frozen=True)
class Written:
    """One transaction; nanoseconds of the machine's monotonic clock, which all processes share."""

    event: str
    due: int
    committed: int


def write(dsn: str, rate: int, seconds: float) -> list[Written]:
    """Write rate * seconds transactions; returns them in the order they were due."""
    sys.setswitchinterval(SWITCH_SECONDS)
    connections = [psycopg.connect(dsn, autocommit=True) for _ in range(SESSIONS)]
    for connection in connections:
        connection.prepare_threshold = 0
        connection.execute("select bench_payload(1)")
    pace = _Pace(time.monotonic_ns() + 50_000_000, rate, int(rate * seconds))
    actual: list[list[Written]] = [[] for _ in connections]
    threads = [threading.Thread(target=_session, args=(*pair, pace)) for pair in zip(connections, actual, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for connection in connections:
        connection.close()
    written = sorted((entry for item in actual for entry in item), key=lambda entry: entry.due)
    if len(written) != pace.count:
        raise RuntimeError(f"{len(written)} of {pace.count} transactions were written")
    return written


class _Pace:
    """Schedule of transactions. Any free thread takes the next entry, so one slow COMMIT does not delay the others."""

    def __init__(self, start: int, rate: int, count: int) -> None:
        self.count = count
        self._start, self._rate = start, rate
        self._lock, self._next = threading.Lock(), 0

    def take(self) -> tuple[int, int] | None:
        """Return number and time of the next transaction; None when all are taken."""
        with self._lock:
            number = self._next
            self._next += 1
        if number >= self.count:
            return None
        return number, self._start + number * 1_000_000_000 // self._rate


def _session(connection: psycopg.Connection[tuple[object, ...]], found: list[Written], pace: _Pace) -> None:
    while taken := pace.take():
        number, due = taken
        wait = due - time.monotonic_ns()
        if wait > 0:
            time.sleep(wait / 1e9)
        event = str(uuid4())
        connection.execute(INSERT, (event, event, number))
        found.append(Written(event, due, time.monotonic_ns()))
