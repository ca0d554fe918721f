"""Sessions after errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from outbox_events.errors import WaitTimeoutError
from outbox_kit.relay import epochs, run
from outbox_kit.relay.failures import Failures
from outbox_kit.relay.worker import RelayProcess


def test_a_session_is_started_again_if_the_topics_cannot_be_read_after_a_failover(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Unlike the WaitTimeoutError of `--once`, it does not end the process."""
    answers: list[Any] = [WaitTimeoutError("waited 60 s for the end of topic"), 7]

    def highest_epoch(_: object) -> int:
        if isinstance(answer := answers.pop(0), Exception):
            raise answer
        return int(answer)

    @contextmanager
    def connected(_: object) -> Iterator[MagicMock]:
        yield MagicMock()

    reports: list[str] = []
    process = MagicMock(stop=Event(), options=SimpleNamespace(once=True), progress=reports.append)
    process.failures = Failures(0, reports.append)
    monkeypatch.setattr(epochs, "highest_epoch", highest_epoch)
    before = {"source_epoch": 3, "system_identifier": "1", "timeline": 1}
    monkeypatch.setattr(epochs, "_read", lambda *_: before)
    monkeypatch.setattr(epochs, "_server", lambda _: ("1", 2))
    monkeypatch.setattr(epochs, "RAISE", MagicMock())
    monkeypatch.setattr(run.client, "connected", connected)
    for name in ("require_columns", "Worker", "RowReader", "_refuse_other_table"):
        monkeypatch.setattr(run, name, MagicMock())
    monkeypatch.setattr(run.client, "read_column_types", MagicMock())
    run._run_sessions(cast(RelayProcess, process), MagicMock())
    assert answers == []
    assert any("source epoch 8" in report for report in reports)
