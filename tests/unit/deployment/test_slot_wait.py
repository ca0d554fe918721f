"""Waits after a connector was started, and the message it is given to read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from tests.unit.postgres.samples import SLOT

from outbox_kit.connect.client import ConnectorStatus
from outbox_kit.connect.lifecycle import FailedError
from outbox_kit.deployment import Deployment, slot_wait
from outbox_kit.errors import WaitTimeoutError
from outbox_kit.postgres.replication_slot import Slot

Deployed = Callable[..., Deployment]
RUNNING = ConnectorStatus("RUNNING", ("RUNNING",), ())
FAILED = ConnectorStatus("RUNNING", ("FAILED",), ("x.Exception: why\n\tat a\n",))
UNCHANGED = replace(SLOT, active=True, confirmed_flush=5)
INACTIVE = replace(SLOT, active=False, confirmed_flush=5)
ADVANCED = replace(SLOT, active=True, confirmed_flush=9)


@pytest.fixture
def play(deployed: Deployed, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Wait on a slot with these states, the last repeated; return the actions in order."""

    @contextmanager
    def connected(_: object) -> Iterator[None]:
        yield None

    def run(*rows: Slot, status: ConnectorStatus = RUNNING) -> list[str]:
        rows_left, done = list(rows), list[str]()

        def read_slot(*_: object) -> Slot:
            done.append("read")
            return rows_left.pop(0) if len(rows_left) > 1 else rows_left[0]

        monkeypatch.setattr(slot_wait, "POLL_INTERVAL_S", 0.01)
        monkeypatch.setattr(slot_wait, "SLOT_TIMEOUT_S", 0.2)
        monkeypatch.setattr(slot_wait.postgres_client, "connected", connected)
        monkeypatch.setattr(slot_wait.postgres_client, "commit_heartbeat", lambda _: done.append("commit"))
        monkeypatch.setattr(slot_wait, "read_slot", read_slot)
        deployment = deployed()
        monkeypatch.setattr(deployment.connect, "status", lambda _: status)
        slot_wait.wait_until_reading(deployment)
        return done

    return run


def test_reads_the_slot_before_the_transaction(play: Callable[..., list[str]]) -> None:
    assert play(UNCHANGED, UNCHANGED, ADVANCED) == ["read", "commit", "read", "read"]


def test_slot_that_advanced_and_was_released_is_not_active(play: Callable[..., list[str]]) -> None:
    """Debezium reconnects at the first transaction; until then the slot is not active."""
    assert play(UNCHANGED, replace(ADVANCED, active=False), ADVANCED).count("read") == 3


def test_waits_for_a_large_transaction(play: Callable[..., list[str]]) -> None:
    assert play(UNCHANGED).count("read") > 3


def test_reports_an_inactive_slot(play: Callable[..., list[str]]) -> None:
    with pytest.raises(WaitTimeoutError, match="slot library_outbox to be active"):
        play(INACTIVE)


def test_does_not_wait_for_a_connector_that_fails(play: Callable[..., list[str]]) -> None:
    with pytest.raises(FailedError, match=r"FAILED: x\.Exception: why"):
        play(UNCHANGED, status=FAILED)
