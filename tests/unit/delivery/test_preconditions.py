"""Conditions under which rows may be deleted. tests/integration/operations/test_prune.py uses a real slot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.fake_connect import FakeConnect
from tests.unit.fake_postgres import FakePostgres
from tests.unit.operations.samples import CONFIRMED, NAME
from tests.unit.postgres.samples import DEPLOYED, PUBLICATION, SLOT

from outbox_events.errors import RefusedError, WaitTimeoutError
from outbox_kit.connect.offset_seeding import seed
from outbox_kit.delivery import preconditions
from outbox_kit.delivery.preconditions import refuse_unsafe_pruning, wait_delivered
from outbox_kit.deployment import Deployment
from outbox_kit.pipeline import Lock
from outbox_kit.postgres import client
from outbox_kit.postgres.replication_slot import SlotCounters
from outbox_kit.results import silent

COUNTERS = SlotCounters(5, 500, None)
Check = Callable[[], Lock]


@pytest.fixture
def check(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> Check:
    """Check the conditions before the snapshot."""
    monkeypatch.setattr(preconditions, "publications_of_deletes", lambda *_: [])

    def run() -> Lock:
        with client.connected(deployment.environment.source) as connection:
            return refuse_unsafe_pruning(deployment, connection, silent)

    return run


def test_accepts_the_source_of_the_lock_file(check: Check) -> None:
    assert check().source_epoch


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"publication": {**PUBLICATION, "pubdelete": True}}, "publishes deletes"),
        ({"slot": replace(SLOT, confirmed_flush=CONFIRMED - 1)}, "below"),
        ({"slot": replace(SLOT, confirmed_flush=None)}, "below"),
        ({"slot": None}, "slot 'library_outbox'"),
        ({"system_identifier": "7302"}, "system identifier"),
    ],
)
def test_rejects_another_source(check: Check, database: FakePostgres, change: dict[str, Any], message: str) -> None:
    database.actual = replace(DEPLOYED, **change)
    with pytest.raises(RefusedError, match=message):
        check()


def test_rejects_an_unfinished_apply(check: Check, deployment: Deployment, lock: Lock) -> None:
    deployment.write_lock(lock.model_copy(update={"unfinished": "update"}))
    with pytest.raises(RefusedError, match="was interrupted"):
        check()


Wait = Callable[..., None]


@pytest.fixture
def wait(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> Wait:
    """Wait for a position that the heartbeat reaches. `after` contains the counters of the slot after the wait."""
    after: list[SlotCounters | None] = []
    monkeypatch.setattr(preconditions, "read_counters", lambda *_: after[0])

    def run(position: int = CONFIRMED, *, counters: SlotCounters | None = COUNTERS) -> None:
        after[:] = [counters]
        with client.connected(deployment.environment.source) as connection:
            wait_delivered(deployment, connection, COUNTERS, position, 0.3, silent)

    return run


@pytest.fixture
def _at_the_slot(connect: FakeConnect) -> None:
    """Set the connector's offset beyond the heartbeat, which the slot confirms."""
    connect.offsets[NAME] = [{"partition": {"server": "library"}, "offset": seed(CONFIRMED + 10)}]


@pytest.mark.usefixtures("_at_the_slot")
def test_waits_until_the_slot_has_confirmed_the_position(wait: Wait) -> None:
    wait(CONFIRMED + 1)  # the heartbeat advances the slot by 1
    with pytest.raises(WaitTimeoutError):
        wait(CONFIRMED + 3)


@pytest.mark.usefixtures("_at_the_slot")
@pytest.mark.parametrize("state", ["STOPPED", "PAUSED", None])
def test_rejects_a_connector_that_does_not_run(wait: Wait, connect: FakeConnect, state: str | None) -> None:
    if state is None:
        del connect.configs[NAME], connect.states[NAME]
    else:
        connect.states[NAME] = state
    with pytest.raises(RefusedError) as raised:
        wait(CONFIRMED + 3)
    assert f"`outbox {'resume' if state else 'apply'}`" in raised.value.hint


@pytest.mark.usefixtures("_at_the_slot")
@pytest.mark.parametrize(
    "counters", [None, replace(COUNTERS, total_txns=4), replace(COUNTERS, total_bytes=4), SlotCounters(9, 900, "now")]
)
def test_rejects_a_slot_that_was_created_again_meanwhile(wait: Wait, counters: SlotCounters | None) -> None:
    with pytest.raises(RefusedError, match="was created again"):
        wait(counters=counters)


@pytest.mark.usefixtures("_at_the_slot")
@pytest.mark.parametrize("slot", [None, replace(SLOT, confirmed_flush=CONFIRMED + 50)])
def test_rejects_a_slot_that_was_dropped_or_advanced(wait: Wait, database: FakePostgres, slot: Any) -> None:  # noqa: ANN401
    database.actual = replace(DEPLOYED, slot=slot)
    with pytest.raises(RefusedError):
        wait()


@pytest.mark.usefixtures("_at_the_slot")
def test_rejects_a_source_that_changes_meanwhile(wait: Wait, database: FakePostgres) -> None:
    database.actual = replace(DEPLOYED, system_identifier="7302")
    with pytest.raises(RefusedError, match="system identifier"):
        wait()
