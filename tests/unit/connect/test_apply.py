"""Planned changes of a connector, and the waits, against an HTTP server with scripted responses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.connect.samples import LOOK_S, TRACE, ticking
from tests.unit.support import Request, Script, ScriptedServer

from outbox_kit.changes import Change
from outbox_kit.connect import lifecycle as connect_lifecycle
from outbox_kit.connect.apply import apply, refuse_invalid, refuse_missing_plugins
from outbox_kit.connect.client import ConnectClient, ConnectorStatus
from outbox_kit.connect.lifecycle import (
    has_failed,
    is_paused_or_stopped,
    is_running,
    settle,
    stop,
    wait_for_state,
)
from outbox_kit.connect.offset_seeding import StartPosition
from outbox_kit.connect.state import State
from outbox_kit.errors import RefusedError, RejectedError, WaitTimeoutError
from outbox_kit.pipeline import HttpService
from outbox_kit.progress import silent

Serve = Callable[[Script], ScriptedServer]
SEED = {"lsn": 5, "lsn_proc": 5, "lsn_commit": 5}


@pytest.fixture(autouse=True)
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect_lifecycle, "POLL_INTERVAL_S", LOOK_S)
    monkeypatch.setattr(connect_lifecycle, "monotonic", ticking())


STABLE_S = 3.5 * LOOK_S


def client(server: ScriptedServer) -> ConnectClient:
    return ConnectClient(HttpService(url=server.url))


def status(connector: str, *tasks: str, trace: str = "") -> tuple[int, object]:
    """Connect's response to GET status."""
    state: dict[str, Any] = {"state": connector, "worker_id": "w"}
    parts = [{"id": number, "state": task, "trace": trace} for number, task in enumerate(tasks)]
    return 200, {"name": "c", "connector": state, "tasks": parts}


NOT_YET: tuple[int, object] = (404, {"error_code": 404, "message": "No status found for connector c"})
GOOD = status("RUNNING", "RUNNING")
BAD = status("RUNNING", "FAILED", trace=TRACE)


@pytest.mark.parametrize(
    ("found", "expected"),
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
def test_detects_running(found: ConnectorStatus | None, expected: bool) -> None:
    assert is_running(found) is expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (None, False),
        (ConnectorStatus("RUNNING", ("RUNNING",), ()), False),
        (ConnectorStatus("PAUSED", (), ()), False),
        (ConnectorStatus("FAILED", (), ()), True),
        (ConnectorStatus("RUNNING", ("RUNNING", "FAILED"), ()), True),
    ],
)
def test_detects_failed(found: ConnectorStatus | None, expected: bool) -> None:
    assert has_failed(found) is expected


# --- wait_for_state


@pytest.mark.parametrize(
    "script",
    [
        [GOOD],
        [NOT_YET, NOT_YET, GOOD],
        [NOT_YET, status("UNASSIGNED"), status("RUNNING"), status("RUNNING", "UNASSIGNED"), GOOD],
        [GOOD, GOOD, GOOD, status("RUNNING"), GOOD],
        [GOOD, status("RUNNING", "RESTARTING"), GOOD, NOT_YET, GOOD],
    ],
    ids=["at once", "no status yet", "comes up", "the old state for a moment", "flapping"],
)
def test_waits_for_a_stable_state(serve: Serve, script: Script) -> None:
    server = serve(script)
    wait_for_state(client(server), "c", seconds=10, stability_seconds=STABLE_S)
    assert len(server.seen) > len(script), "what stays is the script's last line"
    assert {request.path for request in server.seen} == {"/connectors/c/status"}


@pytest.mark.parametrize(
    "script",
    [[GOOD, GOOD, BAD], [NOT_YET, status("FAILED", trace="")], [GOOD, GOOD, GOOD, BAD]],
    ids=["runs, then fails", "fails at once", "fails at the last look"],
)
def test_stops_waiting_on_a_failure(serve: Serve, script: Script) -> None:
    with pytest.raises(RejectedError, match="connector c FAILED: ") as caught:
        wait_for_state(client(serve(script)), "c", seconds=10)
    assert "\tat" not in caught.value.message


def test_ignores_a_failure_from_before_the_update(serve: Serve) -> None:
    """PUT config returns before the worker acts: the first polls still show the failure that the update fixes."""
    server = serve([BAD, BAD, status("RUNNING"), GOOD])
    wait_for_state(client(server), "c", seconds=10, stability_seconds=STABLE_S)


@pytest.mark.parametrize(
    ("script", "seen"),
    [
        ([NOT_YET], "no status yet"),
        ([status("RUNNING")], "connector RUNNING, tasks: no task yet"),
        ([status("RUNNING", "UNASSIGNED")], "connector RUNNING, tasks: UNASSIGNED"),
        ([status("PAUSED", "PAUSED")], "connector PAUSED, tasks: PAUSED"),
    ],
)
def test_timeout_reports_the_last_status(serve: Serve, script: Script, seen: str) -> None:
    with pytest.raises(WaitTimeoutError) as caught:
        wait_for_state(client(serve(script)), "c", seconds=0.1, stability_seconds=STABLE_S)
    expected = f"waited 0.135 s for connector c and its tasks to be RUNNING; last seen: {seen}"
    assert caught.value.message == expected
    assert "rebalance delay" in caught.value.hint


def test_flapping_connector_is_not_running(serve: Serve) -> None:
    script = [GOOD, GOOD, status("RUNNING", "RESTARTING")] * 200
    with pytest.raises(WaitTimeoutError):
        wait_for_state(client(serve(script)), "c", seconds=0.2, stability_seconds=STABLE_S)


# --- before anything is written


def test_rejects_missing_plugins(serve: Serve) -> None:
    server = serve([(200, [{"class": "A"}])])
    with pytest.raises(RefusedError) as caught:
        refuse_missing_plugins(
            client(server), {"connector.class": "A", "transforms.x.type": "B", "value.converter": "C", "name": "D"}
        )
    assert caught.value.message == f"the Connect worker at {server.url} lacks plugin B, C"
    assert "plugin.path" in caught.value.hint


def test_rejects_an_invalid_config_by_key(serve: Serve) -> None:
    values = [
        {"value": {"name": name, "value": "s3cret", "errors": errors}}
        for name, errors in (("b", ["is wrong", "very"]), ("a", ["too small"]), ("c", []))
    ]
    with pytest.raises(RefusedError) as caught:
        refuse_invalid(client(serve([(200, {"configs": values})])), "c", {"connector.class": "X"})
    message = "Kafka Connect rejects the connector config: a: too small; b: is wrong very"
    assert caught.value.message == message


def test_accepts_a_valid_config(serve: Serve) -> None:
    refuse_invalid(client(serve([(200, {"configs": []})])), "c", {"connector.class": "X"})


# --- apply

CREATE = Change("connect", "connector", "c", "create", "")
UPDATE = Change("connect", "connector", "c", "update", "")
START = Change("connect", "start", "c", "create", "")
STATE = Change("connect", "state", "c", "update", "")
STOPPED = status("STOPPED")
NO_OFFSET: tuple[int, object] = (200, {"offsets": []})
OFFSET: tuple[int, object] = (200, {"offsets": [{"partition": {"server": "p"}, "offset": {"lsn": 9}}]})
# Under another prefix Debezium does not find it, and would start at the server's LSN.
OTHER_PREFIX: tuple[int, object] = (200, {"offsets": [{"partition": {"server": "old"}, "offset": {"lsn": 9}}]})
DONE: tuple[int, object] = (202, None)
SEEDING = Request("PATCH", "/connectors/c/offsets", {"offsets": [{"partition": {"server": "p"}, "offset": SEED}]})
LOOK, OFFSETS = Request("GET", "/connectors/c/status"), Request("GET", "/connectors/c/offsets")
RESUME = Request("PUT", "/connectors/c/resume")
POST = Request("POST", "/connectors", {"name": "c", "config": {"a": "1"}, "initial_state": "STOPPED"})
PUT = Request("PUT", "/connectors/c/config", {"a": "1"})
STOP = Request("PUT", "/connectors/c/stop")
CONFIG = Request("GET", "/connectors/c/config")
PAUSED = status("PAUSED", "PAUSED")


@pytest.mark.parametrize(
    ("changes", "script", "requests"),
    [
        ([], [DONE], []),
        (
            [CREATE],
            [(201, {}), NOT_YET, status("RUNNING", "RUNNING"), STOPPED, NO_OFFSET, (200, {}), DONE],
            [POST, LOOK, LOOK, LOOK, OFFSETS, SEEDING, RESUME],
        ),
        ([CREATE], [(201, {}), STOPPED, OFFSET, DONE], [POST, LOOK, OFFSETS, RESUME]),
        (
            [UPDATE],
            [GOOD, DONE, GOOD, status("STOPPED", "RUNNING"), STOPPED, (200, {}), OFFSET, DONE],
            [LOOK, STOP, LOOK, LOOK, LOOK, PUT, OFFSETS, RESUME],
        ),
        ([UPDATE], [BAD, DONE, BAD, STOPPED, (200, {}), OFFSET, DONE], [LOOK, STOP, LOOK, LOOK, PUT, OFFSETS, RESUME]),
        (
            [UPDATE],
            [status("FAILED"), DONE, STOPPED, (200, {}), OFFSET, DONE],
            [LOOK, STOP, LOOK, PUT, OFFSETS, RESUME],
        ),
        (
            [UPDATE],
            [NOT_YET, DONE, NOT_YET, STOPPED, (200, {}), OFFSET, DONE],
            [LOOK, STOP, LOOK, LOOK, PUT, OFFSETS, RESUME],
        ),
        (
            [UPDATE],
            [GOOD, DONE, STOPPED, (200, {}), OTHER_PREFIX, (200, {}), DONE],
            [LOOK, STOP, LOOK, PUT, OFFSETS, SEEDING, RESUME],
        ),
        ([STATE], [PAUSED, DONE], [LOOK, RESUME]),
        ([STATE], [STOPPED, DONE, STOPPED, OFFSET, DONE], [LOOK, STOP, LOOK, OFFSETS, RESUME]),
        ([UPDATE], [PAUSED, (200, {})], [LOOK, PUT]),
        ([UPDATE], [STOPPED, (200, {})], [LOOK, PUT]),
        ([START], [STOPPED, NO_OFFSET, (200, {}), DONE], [LOOK, OFFSETS, SEEDING, RESUME]),
        (
            [UPDATE, START],
            [STOPPED, (200, {}), STOPPED, OFFSET, DONE],
            [LOOK, PUT, LOOK, OFFSETS, RESUME],
        ),
    ],
    ids=[
        "nothing",
        "create",
        "an old offset stays",
        "update",
        "update with a failed task",
        "update of a failed connector",
        "update without a status yet",
        "update of the prefix",
        "paused by hand",
        "stopped by hand",
        "update while paused",
        "update while stopped",
        "interrupted",
        "interrupted, changed",
    ],
)
def test_apply(serve: Serve, changes: list[Change], script: Script, requests: list[Request]) -> None:
    server = serve(script)
    messages: list[str] = []
    apply(client(server), "c", {"a": "1"}, changes, start=StartPosition("p", 5), progress=messages.append)
    assert server.seen == requests
    assert messages == [change.title for change in changes]


def test_does_not_change_offsets_before_the_connector_has_stopped(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect_lifecycle, "STOP_TIMEOUT_S", 0.1)
    server = serve([status("STOPPED", "RUNNING")])
    with pytest.raises(WaitTimeoutError, match="connector c to be STOPPED without tasks; last seen: connector STOPPED"):
        apply(client(server), "c", {}, [START], start=StartPosition("p", 5), progress=silent)
    assert set(request.path for request in server.seen) == {"/connectors/c/status"}


def test_does_not_start_the_connector_after_rejected_seeding(serve: Serve) -> None:
    refused = (400, {"error_code": 400, "message": "Connectors must be in the STOPPED state"})
    server = serve([STOPPED, NO_OFFSET, refused])
    with pytest.raises(RejectedError, match="STOPPED state"):
        apply(client(server), "c", {}, [START], start=StartPosition("p", 5), progress=silent)
    assert RESUME not in server.seen


def test_does_not_change_the_config_before_the_connector_has_stopped(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old task's RUNNING would be taken for the new one's."""
    monkeypatch.setattr(connect_lifecycle, "STOP_TIMEOUT_S", 0.1)
    server = serve([GOOD, DONE, GOOD])
    with pytest.raises(WaitTimeoutError, match="connector c to be STOPPED without tasks; last seen: connector RUNNING"):
        apply(client(server), "c", {"a": "1"}, [UPDATE], start=StartPosition("p", 5), progress=silent)
    assert PUT not in server.seen
    assert server.seen[-2:] == [CONFIG, RESUME], "resumed under the old config"


OLD: tuple[int, object] = (200, {"a": "0"})
NEW: tuple[int, object] = (200, {"a": "1"})
NO: tuple[int, object] = (400, {"error_code": 400, "message": "it is invalid"})
CRASH: tuple[int, object] = (500, {"error_code": 500, "message": "internal"})
LOST: tuple[int, object] = (500, {"error_code": 500, "message": "Request timed out"})
PAUSE = Request("PUT", "/connectors/c/pause")
GOES_ON = "; connector c keeps its previous config and is {} again"
LEFT = "; connector c is left STOPPED, and WAL grows: run `outbox apply` again"


@pytest.mark.parametrize(
    ("script", "state", "writes", "ending"),
    [
        ([NO, OLD, DONE], "running", [PUT, RESUME], GOES_ON.format("running")),
        ([(403, {"message": "no"}), OLD, DONE], "running", [PUT, RESUME], GOES_ON.format("running")),
        ([CRASH, OLD, DONE], "running", [PUT, RESUME], GOES_ON.format("running")),
        ([CRASH, OLD, DONE], "paused", [PUT, PAUSE], GOES_ON.format("paused")),
        ([CRASH, OLD], "stopped", [PUT], GOES_ON.format("stopped")),
        ([CRASH, NEW], "running", [PUT], LEFT),
        ([CRASH, CRASH], "running", [PUT], LEFT),
        ([CRASH, OLD, CRASH], "running", [PUT, RESUME], LEFT),
        ([(200, {}), NO_OFFSET, NO, NEW], "running", [PUT, SEEDING], LEFT),
        ([(200, {}), CRASH, NEW], "running", [PUT], LEFT),
    ],
)
def test_failed_update_restarts_a_healthy_connector(
    serve: Serve, script: Script, state: State, writes: list[Request], ending: str
) -> None:
    server = serve([GOOD, DONE, STOPPED, *script])
    with pytest.raises(RejectedError) as caught:
        apply(client(server), "c", {"a": "1"}, [UPDATE], start=StartPosition("p", 5), progress=silent, state=state)
    assert caught.value.message.endswith(ending)
    assert [request for request in server.seen if request.method != "GET"] == [STOP, *writes]


def test_failed_poll_does_not_end_the_update(serve: Serve) -> None:
    """The same busy worker is queried for the result of a write."""
    server = serve([GOOD, DONE, STOPPED, LOST, LOST, NEW, OFFSET, DONE])
    assert apply(client(server), "c", {"a": "1"}, [UPDATE], start=StartPosition("p", 5), progress=silent)
    assert server.seen == [LOOK, STOP, LOOK, PUT, CONFIG, CONFIG, OFFSETS, RESUME]


# --- stop and settle


def test_stop_waits_until_the_tasks_have_stopped(serve: Serve) -> None:
    server = serve([DONE, GOOD, NOT_YET, status("STOPPED", "RUNNING"), STOPPED])
    stop(client(server), "c")
    assert server.seen == [STOP, LOOK, LOOK, LOOK, LOOK]


@pytest.mark.parametrize(
    ("found", "expected"),
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
def test_detects_paused_or_stopped(found: ConnectorStatus | None, expected: bool) -> None:
    assert is_paused_or_stopped(found) is expected


@pytest.mark.parametrize(("answer", "state"), [(PAUSED, "PAUSED"), (STOPPED, "STOPPED")])
def test_settle_leaves_a_paused_or_stopped_connector(serve: Serve, answer: tuple[int, object], state: str) -> None:
    server = serve([answer])
    messages: list[str] = []
    settle(client(server), "c", messages.append, started=False)
    assert server.seen == [LOOK]
    assert messages == [f"connector c is {state}: left unchanged"]


@pytest.mark.parametrize("script", [[GOOD], [NOT_YET, NOT_YET, GOOD], [status("UNASSIGNED"), GOOD]])
def test_settle_waits_for_other_states(serve: Serve, script: Script) -> None:
    server = serve(script)
    messages: list[str] = []
    settle(client(server), "c", messages.append, started=False, stability_seconds=STABLE_S)
    assert len(server.seen) > len(script)
    assert all(request == LOOK for request in server.seen)
    assert messages == ["wait for connector c to be RUNNING"]


@pytest.mark.parametrize("answer", [BAD, status("FAILED")], ids=["task", "connector"])
def test_settle_fails_for_a_failed_connector(serve: Serve, answer: tuple[int, object]) -> None:
    """A second apply has nothing to change, and must still report the failure."""
    with pytest.raises(RejectedError, match="connector c FAILED: "):
        settle(client(serve([answer])), "c", silent, started=False)
