"""Rollback after a task FAILED with a new config, with a Connect worker in memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.connect_samples import POLL_S, Serve, client, ticking, writes, written
from tests.unit.fake_connect import FakeConnect
from tests.unit.support import ScriptedServer

from outbox_events.errors import RejectedError
from outbox_kit.connect import lifecycle
from outbox_kit.connect.config_diff import FINGERPRINT_KEY
from outbox_kit.connect.lifecycle import FailedError
from outbox_kit.connect.rollback import roll_back
from outbox_kit.connect.state import EPOCH_KEY, State
from outbox_kit.results import Reporter, silent

LAST_WORKING, NEW = written({"a": "1", EPOCH_KEY: "2"}), written({"a": "2", EPOCH_KEY: "2"})
FAILURE = FailedError("connector c FAILED: x.Y: no", "see docs/operations.md")
STOP, PUT, RESUME = (f"PUT /connectors/c/{action}" for action in ("stop", "config", "resume"))
FailsWith = Callable[[dict[str, str]], bool]


@pytest.fixture(autouse=True)
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "POLL_INTERVAL_S", POLL_S)
    monkeypatch.setattr(lifecycle, "monotonic", ticking())


def worker(fails: FailsWith = lambda config: config == NEW) -> FakeConnect:
    """A worker on which the new config runs, with a FAILED task."""
    return FakeConnect(configs={"c": NEW}, states={"c": "RUNNING"}, fails=fails)


def error_of(
    server: ScriptedServer,
    last_working: dict[str, str] | None,
    progress: Reporter = silent,
    state: State = "running",
) -> RejectedError:
    return roll_back(
        client(server),
        "c",
        FAILURE,
        config=NEW,
        last_working=last_working,
        progress=progress,
        state=state,
        stability_seconds=0.05,
    )


def test_restores_the_last_working_config_while_stopped(serve: Serve) -> None:
    connect = worker()
    connect.polls = [("RUNNING", "FAILED"), ("STOPPED",), ("STOPPED",)]  # the last poll is after the resume
    server = serve(connect)
    messages: list[str] = []
    error = error_of(server, LAST_WORKING, messages.append)
    fingerprint = LAST_WORKING[FINGERPRINT_KEY][:12]
    assert (
        error.message == f"connector c FAILED: x.Y: no; rolled back to the last working config ({fingerprint}); "
        "the connector is RUNNING"
    )
    assert "outbox apply" in error.hint
    assert writes(server) == [STOP, PUT, RESUME]
    assert (connect.configs["c"], connect.states["c"]) == (LAST_WORKING, "RUNNING")
    assert messages == [f"connector c FAILED: x.Y: no; rolling back to the last working config ({fingerprint})"]


def test_reports_both_causes_when_the_last_working_config_fails(serve: Serve) -> None:
    error = error_of(serve(worker(lambda _: True)), LAST_WORKING)
    assert "connector c FAILED: x.Y: no; rolled back to the last working config (" in error.message
    assert "but the connector FAILED again: connector c FAILED: org.postgresql.util.PSQLException" in error.message
    assert "outside the config" in error.hint


@pytest.mark.parametrize(
    ("last_working", "reason"),
    [
        (None, "no earlier config has run"),
        (written({"a": "1", EPOCH_KEY: "1"}), "the last working config has an earlier source epoch"),
        *(
            (written({"a": "1", EPOCH_KEY: "2", key: "x"}), f"the last working config has a different {key}")
            for key in ("topic.prefix", "slot.name", "database.hostname", "database.port", "database.dbname")
        ),
    ],
    ids=["first config", "recovered since", "prefix", "slot", "host", "port", "database"],
)
def test_stops_the_connector_without_a_working_config(
    serve: Serve, last_working: dict[str, str] | None, reason: str
) -> None:
    connect = worker()
    error = error_of(serve(connect), last_working)
    assert error.message == f"connector c FAILED: x.Y: no; {reason}, so the connector is left STOPPED"
    assert (connect.configs["c"], connect.states["c"]) == (NEW, "STOPPED")


@pytest.mark.parametrize(("state", "requests"), [("paused", ["PUT /connectors/c/pause"]), ("stopped", [])])
def test_rollback_ends_in_the_declared_state(serve: Serve, state: State, requests: list[str]) -> None:
    connect = worker()
    server = serve(connect)
    assert error_of(server, LAST_WORKING, state=state).message.endswith(f"the connector is {state.upper()}")
    assert writes(server) == [STOP, PUT, *requests]
    assert (connect.configs["c"], connect.states["c"]) == (LAST_WORKING, state.upper())


def test_rolls_back_to_a_config_with_another_login(serve: Serve) -> None:
    """The stored offset is valid for this config, too."""
    before = written({"a": "1", EPOCH_KEY: "2", "database.user": "before"})
    assert error_of(serve(worker()), before).message.endswith("connector is RUNNING")


def test_does_not_change_a_connector_that_failed_before(serve: Serve) -> None:
    """The config is not the cause, so writing it again would not help."""
    server = serve(worker())
    assert error_of(server, NEW) is FAILURE
    assert server.seen == []


def test_reports_no_secret_of_a_config(serve: Serve) -> None:
    before = written({"a": "1", "database.password": "s3cret", EPOCH_KEY: "2"})
    messages: list[str] = []
    error = error_of(serve(worker(lambda _: True)), before, messages.append)
    assert "s3cret" not in error.message + error.hint + repr(messages)
