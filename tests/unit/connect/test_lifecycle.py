"""Waits for the state of a connector, with scripted statuses; stop and remove, with a worker in memory."""

from __future__ import annotations

import time

import pytest
from tests.unit.connect_samples import POLL_S, Serve, client, ticking, writes
from tests.unit.fake_connect import FakeConnect, Fault, error, status_body
from tests.unit.support import Request

from outbox_events.errors import RejectedError, WaitTimeoutError
from outbox_kit.connect import lifecycle
from outbox_kit.connect.client import ConnectorStatus
from outbox_kit.connect.lifecycle import (
    FailedError,
    has_failed,
    is_paused_or_stopped,
    is_running,
    remove,
    stop,
    wait_for_declared_state,
    wait_for_state,
)
from outbox_kit.connect.rest import NotFoundError
from outbox_kit.connect.state import State
from outbox_kit.results import silent

STABLE_S = 3.5 * POLL_S
GET_STATUS = Request("GET", "/connectors/c/status")


def status(connector: str, *tasks: str) -> tuple[int, object]:
    """Return Connect's response to GET status."""
    return 200, status_body("c", connector, *tasks)


NO_STATUS = error(404, "No status found for connector c")
RUNNING, FAILED = status("RUNNING", "RUNNING"), status("RUNNING", "FAILED")
STOPPED, PAUSED = status("STOPPED"), status("PAUSED", "PAUSED")


@pytest.fixture(autouse=True)
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "POLL_INTERVAL_S", POLL_S)
    monkeypatch.setattr(lifecycle, "monotonic", ticking())
    monkeypatch.setattr(lifecycle, "REMOVE_TIMEOUT_S", 0.3)


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (None, False),
        (ConnectorStatus("RUNNING", ("RUNNING",), ()), True),
        (ConnectorStatus("RUNNING", ("RUNNING", "RUNNING"), ()), True),
        (ConnectorStatus("RUNNING", (), ()), False),
        (ConnectorStatus("RUNNING", ("RUNNING", "FAILED"), ()), False),
        (ConnectorStatus("RUNNING", ("UNASSIGNED",), ()), False),
        (ConnectorStatus("RUNNING", ("RESTARTING",), ()), False),
        (ConnectorStatus("RUNNING", ("PAUSED",), ()), False),
        (ConnectorStatus("PAUSED", ("RUNNING",), ()), False),
        (ConnectorStatus("FAILED", ("RUNNING",), ()), False),
        (ConnectorStatus("STOPPED", (), ()), False),
        (ConnectorStatus("UNASSIGNED", ("RUNNING",), ()), False),
    ],
)
def test_detects_running(actual: ConnectorStatus | None, expected: bool) -> None:
    assert is_running(actual) is expected


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (None, False),
        (ConnectorStatus("RUNNING", ("RUNNING",), ()), False),
        (ConnectorStatus("PAUSED", (), ()), False),
        (ConnectorStatus("FAILED", (), ()), True),
        (ConnectorStatus("RUNNING", ("RUNNING", "FAILED"), ()), True),
    ],
)
def test_detects_failed(actual: ConnectorStatus | None, expected: bool) -> None:
    assert has_failed(actual) is expected


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (None, False),
        (ConnectorStatus("PAUSED", ("PAUSED",), ()), True),
        (ConnectorStatus("STOPPED", (), ()), True),
        (ConnectorStatus("RUNNING", ("RUNNING",), ()), False),
        (ConnectorStatus("RUNNING", ("PAUSED",), ()), False),
        (ConnectorStatus("FAILED", (), ()), False),
        (ConnectorStatus("UNASSIGNED", (), ()), False),
    ],
)
def test_detects_paused_or_stopped(actual: ConnectorStatus | None, expected: bool) -> None:
    assert is_paused_or_stopped(actual) is expected


# --- wait_for_state


@pytest.mark.parametrize(
    "script",
    [
        [RUNNING],
        [NO_STATUS, NO_STATUS, RUNNING],
        [NO_STATUS, status("UNASSIGNED"), status("RUNNING"), status("RUNNING", "UNASSIGNED"), RUNNING],
        [RUNNING, RUNNING, RUNNING, status("RUNNING"), RUNNING],
        [RUNNING, status("RUNNING", "RESTARTING"), RUNNING, NO_STATUS, RUNNING],
        # PUT config returns before the worker applies it, so the first polls return the failure that the update fixes.
        [FAILED, FAILED, status("RUNNING"), RUNNING],
    ],
    ids=["at once", "no status yet", "starts", "the old state for a moment", "flapping", "an earlier failure"],
)
def test_waits_for_a_stable_state(serve: Serve, script: list[tuple[int, object]]) -> None:
    server = serve(script)
    wait_for_state(client(server), "c", seconds=10, stability_seconds=STABLE_S)
    assert len(server.seen) > len(script), "the last response of the script is repeated"
    assert {request.path for request in server.seen} == {"/connectors/c/status"}


@pytest.mark.parametrize(
    "script",
    [[RUNNING, RUNNING, FAILED], [NO_STATUS, status("FAILED")], [RUNNING, RUNNING, RUNNING, FAILED]],
    ids=["runs, then fails", "fails at once", "fails at the last poll"],
)
def test_stops_waiting_on_a_failure(serve: Serve, script: list[tuple[int, object]]) -> None:
    with pytest.raises(RejectedError, match="connector c FAILED: ") as caught:
        wait_for_state(client(serve(script)), "c", seconds=10)
    assert "\tat" not in caught.value.message


@pytest.mark.parametrize(
    ("script", "observed"),
    [
        ([NO_STATUS], "no status yet"),
        ([status("RUNNING")], "connector RUNNING, tasks: no task yet"),
        ([status("RUNNING", "UNASSIGNED")], "connector RUNNING, tasks: UNASSIGNED"),
        ([PAUSED], "connector PAUSED, tasks: PAUSED"),
    ],
)
def test_timeout_reports_the_last_status(serve: Serve, script: list[tuple[int, object]], observed: str) -> None:
    with pytest.raises(WaitTimeoutError) as caught:
        wait_for_state(client(serve(script)), "c", seconds=0.1, stability_seconds=STABLE_S)
    expected = f"waited 0.135 s for connector c and its tasks to be RUNNING; last seen: {observed}"
    assert caught.value.message == expected
    assert "scheduled.rebalance.max.delay.ms" in caught.value.hint


def test_flapping_connector_is_not_running(serve: Serve) -> None:
    script = [RUNNING, RUNNING, status("RUNNING", "RESTARTING")] * 200
    with pytest.raises(WaitTimeoutError):
        wait_for_state(client(serve(script)), "c", seconds=0.2, stability_seconds=STABLE_S)


def test_window_is_added_to_the_wait(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stability window may be longer than the time limit of the start."""
    monkeypatch.setattr(lifecycle, "monotonic", time.monotonic)
    wait_for_state(client(serve([RUNNING])), "c", seconds=0.6, stability_seconds=0.8)
    with pytest.raises(WaitTimeoutError, match=r"waited 0\.25 s for connector c"):
        wait_for_state(client(serve([STOPPED])), "c", seconds=0.05, stability_seconds=0.2)


# --- wait_for_declared_state


@pytest.mark.parametrize(("response", "state"), [(PAUSED, "PAUSED"), (STOPPED, "STOPPED")])
def test_wait_for_declared_state_leaves_a_paused_or_stopped_connector(
    serve: Serve, response: tuple[int, object], state: str
) -> None:
    server = serve([response])
    messages: list[str] = []
    wait_for_declared_state(client(server), "c", messages.append, started=False)
    assert server.seen == [GET_STATUS]
    assert messages == [f"connector c is {state}, and remains in this state"]


@pytest.mark.parametrize("script", [[RUNNING], [NO_STATUS, NO_STATUS, RUNNING], [status("UNASSIGNED"), RUNNING]])
def test_wait_for_declared_state_waits_for_other_states(serve: Serve, script: list[tuple[int, object]]) -> None:
    server = serve(script)
    messages: list[str] = []
    wait_for_declared_state(client(server), "c", messages.append, started=False, stability_seconds=STABLE_S)
    assert len(server.seen) > len(script)
    assert all(request == GET_STATUS for request in server.seen)
    assert messages == ["wait for connector c to be RUNNING"]


@pytest.mark.parametrize(
    ("state", "script", "has_run"),
    [
        ("running", [STOPPED, STOPPED, status("RUNNING"), RUNNING], True),
        ("paused", [RUNNING, status("PAUSED", "RUNNING"), PAUSED], False),
        # Observed with Kafka 4.3: a connector that is paused while STOPPED has no task until it is resumed.
        ("paused", [STOPPED, status("PAUSED")], False),
        ("stopped", [RUNNING, status("STOPPED", "RUNNING"), STOPPED], False),
    ],
)
def test_wait_for_declared_state_waits_for_the_declared_state(
    serve: Serve, state: State, script: list[tuple[int, object]], has_run: bool
) -> None:
    """A rollback can only restore a config that has run."""
    server = serve(script)
    actual = wait_for_declared_state(client(server), "c", silent, started=True, state=state, stability_seconds=0.05)
    assert actual is has_run
    assert len(server.seen) >= len(script)


@pytest.mark.parametrize(
    ("state", "response", "started"),
    [
        ("running", FAILED, True),
        ("paused", status("PAUSED", "FAILED"), True),
        # A second apply has nothing to change, and must still report the failure.
        ("running", FAILED, False),
        ("running", status("FAILED"), False),
    ],
)
def test_wait_for_declared_state_fails_for_a_failed_connector(
    serve: Serve, state: State, response: tuple[int, object], started: bool
) -> None:
    with pytest.raises(FailedError, match="connector c FAILED: ") as caught:
        wait_for_declared_state(client(serve([response])), "c", silent, started=started, state=state)
    assert ("publication does not exist" in caught.value.message) == (response != status("FAILED"))


def test_running_is_accepted_after_the_window(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "monotonic", time.monotonic)
    started_at = time.monotonic()
    assert wait_for_declared_state(client(serve([RUNNING])), "c", silent, started=True, stability_seconds=0.4)
    assert time.monotonic() - started_at >= 0.4


def test_interruption_restarts_the_window(serve: Serve) -> None:
    """Eleven polls return RUNNING, but never eight in a row."""
    server = serve([RUNNING] * 5 + [status("RUNNING", "RESTARTING")] + [RUNNING] * 6 + [FAILED])
    with pytest.raises(FailedError):
        wait_for_declared_state(client(server), "c", silent, started=True, stability_seconds=8 * POLL_S)


# --- stop and remove

STOP, DELETE = "PUT /connectors/c/stop", "DELETE /connectors/c"
LOST = Fault(error(500, "Request timed out. The worker is currently starting"), done=True)


def worker(polls: list[tuple[str, ...]], faults: dict[str, list[Fault | None]]) -> FakeConnect:
    return FakeConnect(configs={"c": {"a": "1"}}, states={"c": "RUNNING"}, polls=[*polls], faults=faults)


@pytest.mark.parametrize("faults", [{}, {"PUT stop": [LOST]}], ids=["response", "no response"])
def test_stop_waits_until_the_tasks_have_stopped(serve: Serve, faults: dict[str, list[Fault | None]]) -> None:
    server = serve(worker([("RUNNING", "RUNNING"), (), ("STOPPED", "RUNNING")], faults))
    stop(client(server), "c")
    assert server.seen == [Request("PUT", "/connectors/c/stop"), *[GET_STATUS] * 4]


def test_rejects_stopping_a_missing_connector(serve: Serve) -> None:
    with pytest.raises(NotFoundError):
        stop(client(serve(FakeConnect())), "c")


@pytest.mark.parametrize(
    ("polls", "faults", "offsets", "expected"),
    [
        ([("RUNNING", "RUNNING"), ("STOPPED",), ("STOPPED",)], {}, False, [STOP, DELETE]),
        # The status may be removed before the config.
        ([], {"GET config": [None, Fault((200, {"a": "1"}))]}, False, [STOP, DELETE]),
        ([], {"DELETE connector": [Fault(error(404, "Connector c not found"), done=True)]}, False, [STOP, DELETE]),
        ([], {"DELETE connector": [LOST]}, False, [STOP, DELETE]),
        ([], {}, True, [STOP, "DELETE /connectors/c/offsets", DELETE]),
    ],
    ids=["deleted", "config later", "deleted by another client", "no response", "with its offsets"],
)
def test_remove_waits_for_the_deletion(
    serve: Serve,
    polls: list[tuple[str, ...]],
    faults: dict[str, list[Fault | None]],
    offsets: bool,
    expected: list[str],
) -> None:
    connect = worker(polls, faults)
    connect.offsets = {"c": [{"partition": {"server": "p"}, "offset": {"lsn": 5}}]}
    server = serve(connect)
    remove(client(server), "c", with_offsets=offsets)
    assert writes(server) == expected
    assert connect.configs == {}
    assert bool(connect.offsets["c"]) is not offsets
    assert not connect.polls
    assert not any(connect.faults.values()), "polled until nothing is left"


def test_remove_of_a_missing_connector_does_nothing(serve: Serve) -> None:
    server = serve(FakeConnect())
    remove(client(server), "c")
    assert writes(server) == []


def test_reports_a_connector_that_is_not_deleted(serve: Serve) -> None:
    server = serve(worker([], {"DELETE connector": [Fault((204, None))]}))
    with pytest.raises(WaitTimeoutError, match="connector c to be deleted; last seen: connector STOPPED"):
        remove(client(server), "c")
