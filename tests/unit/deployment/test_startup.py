"""What is waited for after a connector was started, and what it is given to read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from outbox_kit.connect.client import ConnectorStatus
from outbox_kit.connect.lifecycle import FailedError
from outbox_kit.deployment import Deployment, startup
from outbox_kit.errors import WaitTimeoutError

Deployed = Callable[..., Deployment]
Row = dict[str, object]
RUNNING = ConnectorStatus("RUNNING", ("RUNNING",), ())
FAILED = ConnectorStatus("RUNNING", ("FAILED",), ("x.Exception: why\n\tat a\n",))
REST = {"active": True, "confirmed_flush": 5}
FREE = {"active": False, "confirmed_flush": 5}
MOVED = {"active": True, "confirmed_flush": 9}


@pytest.fixture
def play(deployed: Deployed, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Wait on a slot that is found in these states, the last repeated; returns what was done, in order."""

    @contextmanager
    def connected(_: object) -> Iterator[None]:
        yield None

    def run(*rows: Row, status: ConnectorStatus = RUNNING) -> list[str]:
        looks, done = list(rows), list[str]()

        def positions(*_: object) -> Row:
            done.append("look")
            return looks.pop(0) if len(looks) > 1 else looks[0]

        monkeypatch.setattr(startup, "LOOK_EVERY_S", 0.01)
        monkeypatch.setattr(startup, "SLOT_TIMEOUT_S", 0.2)
        monkeypatch.setattr(startup.postgres_client, "connected", connected)
        monkeypatch.setattr(startup.postgres_client, "emit_transaction", lambda _: done.append("emit"))
        monkeypatch.setattr(startup.postgres_positions, "positions", positions)
        deployment = deployed()
        monkeypatch.setattr(deployment.connect, "status", lambda _: status)
        startup.wait_reading(deployment)
        return done

    return run


def test_the_position_is_looked_at_before_the_transaction(play: Callable[..., list[str]]) -> None:
    assert play(REST, REST, MOVED) == ["look", "emit", "look", "look"]


def test_a_slot_that_moved_and_was_given_up_is_not_read(play: Callable[..., list[str]]) -> None:
    """Debezium connects anew at the first transaction; until then the slot is free."""
    assert play(REST, {**MOVED, "active": False}, MOVED).count("look") == 3


def test_a_large_transaction_takes_its_time(play: Callable[..., list[str]]) -> None:
    assert play(REST).count("look") > 3


def test_nobody_reads(play: Callable[..., list[str]]) -> None:
    with pytest.raises(WaitTimeoutError, match="slot library_outbox to be read"):
        play(FREE)


def test_one_that_fails_at_what_it_reads_is_not_waited_for(play: Callable[..., list[str]]) -> None:
    with pytest.raises(FailedError, match=r"FAILED: x\.Exception: why"):
        play(REST, status=FAILED)
