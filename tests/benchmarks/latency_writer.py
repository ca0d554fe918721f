"""Writer of outbox rows at a fixed rate, one per transaction, in a separate process.

The schedule is fixed in advance (open loop). A delayed transaction is written late, but later transactions keep their
times, so a stall affects as many transactions as it would in production.
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
    """One transaction: event id, due time and commit time, in nanoseconds of the monotonic clock of the machine."""

    event: str
    due: int
    committed: int


def write(dsn: str, rate: int, seconds: float) -> list[Written]:
    """Write `rate` * `seconds` transactions. Return them in the order of their due times."""
    sys.setswitchinterval(SWITCH_SECONDS)
    connections = [psycopg.connect(dsn, autocommit=True) for _ in range(SESSIONS)]
    for connection in connections:
        connection.prepare_threshold = 0
        connection.execute("select bench_payload(1)")
    schedule = _Schedule(time.monotonic_ns() + 50_000_000, rate, int(rate * seconds))
    results: list[list[Written]] = [[] for _ in connections]
    pairs = zip(connections, results, strict=True)
    threads = [threading.Thread(target=_session, args=(*pair, schedule)) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for connection in connections:
        connection.close()
    written = sorted((entry for entries in results for entry in entries), key=lambda entry: entry.due)
    if len(written) != schedule.count:
        raise RuntimeError(f"{len(written)} of {schedule.count} transactions were written")
    return written


class _Schedule:
    """Schedule of transactions. Each free thread takes the next entry, so a slow COMMIT delays only its thread."""

    def __init__(self, start: int, rate: int, count: int) -> None:
        self.count = count
        self._start, self._rate = start, rate
        self._lock, self._next = threading.Lock(), 0

    def take(self) -> tuple[int, int] | None:
        """Return the number and time of the next transaction, or None if all have been taken."""
        with self._lock:
            number = self._next
            self._next += 1
        if number >= self.count:
            return None
        return number, self._start + number * 1_000_000_000 // self._rate


def _session(connection: psycopg.Connection[tuple[object, ...]], written: list[Written], schedule: _Schedule) -> None:
    while taken := schedule.take():
        number, due = taken
        wait = due - time.monotonic_ns()
        if wait > 0:
            time.sleep(wait / 1e9)
        event = str(uuid4())
        connection.execute(INSERT, (event, event, number))
        written.append(Written(event, due, time.monotonic_ns()))
