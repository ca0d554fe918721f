"""What a backfill says of itself, and the pace it keeps."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from outbox_kit.backfill.backfill_run import Meter
from outbox_kit.backfill.progress_table import Mark


def mark(rows: int, skipped: int = 0, *, finished: bool = False) -> Mark:
    return Mark("k", rows, skipped, datetime(2026, 1, 1, tzinfo=UTC) if finished else None)


def meter(estimate: int | None, start: Mark, said: list[str] | None = None) -> Meter:
    return Meter("book", estimate, start, (said if said is not None else []).append)


@pytest.mark.parametrize(
    ("estimate", "now", "begin", "end"),
    [
        (1000, mark(100), "book: 100 rows, ", " rows/s, about 900 left"),
        (1000, mark(100, 50), "book: 100 rows, 50 skipped, ", " rows/s, about 850 left"),
        (10, mark(100), "book: 100 rows, ", " rows/s, about 0 left"),
        (None, mark(100), "book: 100 rows, ", " rows/s"),
    ],
)
def test_counts_rate_and_what_is_left(estimate: int | None, now: Mark, begin: str, end: str) -> None:
    found = meter(estimate, mark(0))
    found.count(now)
    assert found.words().startswith(begin)
    assert found.words().endswith(end)


def test_the_rate_is_of_this_run_alone() -> None:
    found = meter(None, mark(1_000_000))
    found.count(mark(1_000_000))
    assert found.words() == "book: 1000000 rows, 0 rows/s"


def test_it_speaks_at_most_once_a_second() -> None:
    said: list[str] = []
    found = meter(None, mark(0), said)
    for rows in range(100):
        found.count(mark(rows))
    assert said == []


def test_rows_of_this_run_and_of_all_runs_are_told_apart() -> None:
    said: list[str] = []
    done = meter(None, mark(40, 2), said).done(mark(100, 5, finished=True))
    assert (done.rows, done.skipped, done.rows_now) == (100, 5, 60)
    assert said == ["book: done, 100 rows, 5 skipped: the query leaves them out"]


def test_the_pace_waits_for_what_is_due_and_for_no_more() -> None:
    found = meter(None, mark(1000))
    found.count(mark(1010))
    began = time.monotonic()
    found.pace(50)
    assert 0.1 < time.monotonic() - began < 2
    began = time.monotonic()
    found.pace(1_000_000)
    assert time.monotonic() - began < 0.1
