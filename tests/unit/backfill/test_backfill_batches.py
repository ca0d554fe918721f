"""Progress report and rate limit of a backfill."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from outbox_kit.backfill.backfill_batches import ProgressMeter
from outbox_kit.backfill.progress_table import BackfillProgress


def stored(rows: int, skipped: int = 0, *, finished: bool = False) -> BackfillProgress:
    return BackfillProgress("k", rows, skipped, datetime(2026, 1, 1, tzinfo=UTC) if finished else None)


def meter(total: int | None, start: BackfillProgress, messages: list[str] | None = None) -> ProgressMeter:
    return ProgressMeter("book", total, start, (messages if messages is not None else []).append)


@pytest.mark.parametrize(
    ("estimate", "now", "begin", "end"),
    [
        (1000, stored(100), "book: 100 rows, ", " rows/s, about 900 left"),
        (1000, stored(100, 50), "book: 100 rows, 50 skipped, ", " rows/s, about 850 left"),
        (10, stored(100), "book: 100 rows, ", " rows/s, about 0 left"),
        (None, stored(100), "book: 100 rows, ", " rows/s"),
    ],
)
def test_counts_rate_and_remaining_rows(estimate: int | None, now: BackfillProgress, begin: str, end: str) -> None:
    run = meter(estimate, stored(0))
    run.update(now)
    assert run.describe().startswith(begin)
    assert run.describe().endswith(end)


def test_rate_covers_this_run_only() -> None:
    run = meter(None, stored(1_000_000))
    run.update(stored(1_000_000))
    assert run.describe() == "book: 1000000 rows, 0 rows/s"


def test_reports_at_most_once_a_second() -> None:
    messages: list[str] = []
    run = meter(None, stored(0), messages)
    for rows in range(100):
        run.update(stored(rows))
    assert messages == []


def test_rows_of_this_run_and_of_all_runs() -> None:
    messages: list[str] = []
    done = meter(None, stored(40, 2), messages).finish(stored(100, 5, finished=True))
    assert (done.rows, done.skipped, done.rows_now) == (100, 5, 60)
    assert len(messages) == 1
    assert messages[0].startswith("book: finished, 100 rows, 5 skipped")


def test_rate_limit_waits_no_longer_than_needed() -> None:
    run = meter(None, stored(1000))
    run.update(stored(1010))
    started = time.monotonic()
    run.limit_rate(50)
    assert 0.1 < time.monotonic() - started < 2
    started = time.monotonic()
    run.limit_rate(1_000_000)
    assert time.monotonic() - started < 0.1
