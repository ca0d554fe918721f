"""Wait until a started connector reads its slot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.unit.deployment.samples import Deployed, Serve, deployed_connector, service
from tests.unit.fake_postgres import FakePostgres
from tests.unit.postgres.samples import SLOT

from outbox_kit.connect.lifecycle import FailedError
from outbox_kit.deployment import slot_wait
from outbox_kit.errors import WaitTimeoutError
from outbox_kit.postgres.replication_slot import Slot

UNCHANGED = replace(SLOT, active=True, confirmed_flush=5)
INACTIVE = replace(SLOT, active=False, confirmed_flush=5)
ADVANCED = replace(SLOT, active=True, confirmed_flush=9)
Wait = Callable[..., list[str]]


@pytest.fixture
def wait(serve: Serve, deployed: Deployed, database: FakePostgres, monkeypatch: pytest.MonkeyPatch) -> Wait:
    """Return a function that waits on a slot with these states (the last is repeated) and returns the queries."""
    monkeypatch.setattr(slot_wait, "POLL_INTERVAL_S", 0.01)
    monkeypatch.setattr(slot_wait, "SLOT_TIMEOUT_S", 0.2)
    database.confirms = False

    def run(*slots: Slot, failed: bool = False) -> list[str]:
        database.polls = [*slots[:-1]]
        database.actual = replace(database.actual, slot=slots[-1])
        connect = deployed_connector({})
        connect.fails = lambda _: failed
        slot_wait.wait_until_reading(deployed(connect=service(serve(connect))))
        return database.queries

    return run


def test_reads_the_slot_before_the_transaction(wait: Wait) -> None:
    assert wait(UNCHANGED, UNCHANGED, ADVANCED) == ["slot", "heartbeat", "slot", "slot"]


def test_slot_that_advanced_and_was_released_is_not_active(wait: Wait) -> None:
    """After its first transaction Debezium reconnects, and meanwhile the slot is not active."""
    assert wait(UNCHANGED, replace(ADVANCED, active=False), ADVANCED).count("slot") == 3


def test_waits_for_a_large_transaction(wait: Wait) -> None:
    assert wait(UNCHANGED).count("slot") > 3


def test_reports_an_inactive_slot(wait: Wait) -> None:
    with pytest.raises(WaitTimeoutError, match="slot library_outbox to be active"):
        wait(INACTIVE)


def test_does_not_wait_for_a_connector_that_fails(wait: Wait) -> None:
    with pytest.raises(FailedError, match=r"FAILED: .*ERROR: publication does not exist"):
        wait(UNCHANGED, failed=True)
