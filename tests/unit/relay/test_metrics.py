"""Metrics file of the relay."""

from __future__ import annotations

from pathlib import Path

import pytest

from outbox_events.errors import ConfigurationError
from outbox_kit.relay.metrics import Backlog, Counters, MetricsFile


def samples(path: Path) -> dict[str, float]:
    lines = [line.rpartition(" ") for line in path.read_text().splitlines() if not line.startswith("#")]
    return {name.removeprefix("outbox_relay_").partition("{")[0]: float(value) for name, _, value in lines}


def test_replaces_the_file(tmp_path: Path) -> None:
    path = tmp_path / "relay.prom"
    counters = Counters()
    metrics = MetricsFile(path, "library", counters, pytest.fail)
    counters.sent, counters.errors = 3_000_000, 2
    metrics.write(Backlog(buckets=8, rows=100_000, seconds=12.5))
    actual = samples(path)
    assert (actual["records_sent_total"], actual["errors_total"]) == (3_000_000, 2)
    assert (actual["buckets"], actual["pending_rows"], actual["lag_seconds"]) == (8, 100_000, 12.5)
    assert list(tmp_path.iterdir()) == [path]
    assert not metrics.is_due


def test_a_missing_folder_is_an_error_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError):
        MetricsFile(tmp_path / "missing" / "relay.prom", "library", Counters(), pytest.fail)


def test_a_later_error_is_only_reported(tmp_path: Path) -> None:
    folder = tmp_path / "metrics"
    folder.mkdir()
    reported: list[str] = []
    metrics = MetricsFile(folder / "relay.prom", "library", Counters(), reported.append)
    (folder / "relay.prom").unlink()
    folder.rmdir()
    metrics.write(Backlog())
    assert len(reported) == 1
