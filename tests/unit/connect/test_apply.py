"""Planned changes of a connector, applied to a Connect worker in memory."""

from __future__ import annotations

import pytest
from tests.unit.connect_samples import (
    CREATE,
    POLL_S,
    SEED,
    START,
    STATE,
    UPDATE,
    Serve,
    client,
    stored,
    ticking,
    writes,
)
from tests.unit.fake_connect import FakeConnect, Fault, error
from tests.unit.support import Request

from outbox_events.errors import RefusedError, RejectedError, WaitTimeoutError
from outbox_kit.connect import lifecycle
from outbox_kit.connect.apply import apply, refuse_invalid, refuse_missing_plugins
from outbox_kit.connect.offset_seeding import StartPosition
from outbox_kit.connect.state import State
from outbox_kit.results import silent
from outbox_kit.results.changes import Change


@pytest.fixture(autouse=True)
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "POLL_INTERVAL_S", POLL_S)
    monkeypatch.setattr(lifecycle, "monotonic", ticking())


# --- checks before the first write


def test_rejects_missing_plugins(serve: Serve) -> None:
    server = serve(FakeConnect([{"class": "A"}]))
    config = {"connector.class": "A", "transforms.x.type": "B", "value.converter": "C", "name": "D"}
    with pytest.raises(RefusedError) as caught:
        refuse_missing_plugins(client(server), config)
    assert caught.value.message == f"the Connect worker at {server.url} lacks B, C"
    assert "plugin.path" in caught.value.hint


def test_rejects_an_invalid_config_by_key(serve: Serve) -> None:
    values = [
        {"value": {"name": name, "value": "s3cret", "errors": errors}}
        for name, errors in (("b", ["is wrong", "very"]), ("a", ["too small"]), ("c", []))
    ]
    with pytest.raises(RefusedError) as caught:
        refuse_invalid(client(serve([(200, {"configs": values})])), "c", {"connector.class": "X"})
    assert caught.value.message == "Kafka Connect rejects the connector config: a: too small; b: is wrong very"


def test_accepts_a_valid_config(serve: Serve) -> None:
    refuse_invalid(client(serve(FakeConnect())), "c", {"connector.class": "X"})


# --- apply

OFFSET = stored({"lsn": 9})
RUNNING = ("RUNNING", "RUNNING")
GET_STATUS, GET_OFFSETS = Request("GET", "/connectors/c/status"), Request("GET", "/connectors/c/offsets")
GET_CONFIG = Request("GET", "/connectors/c/config")
POST = Request("POST", "/connectors", {"name": "c", "config": {"a": "1"}, "initial_state": "STOPPED"})
PUT = Request("PUT", "/connectors/c/config", {"a": "1"})
SEEDING = Request("PATCH", "/connectors/c/offsets", {"offsets": stored(SEED)})
STOP, RESUME = Request("PUT", "/connectors/c/stop"), Request("PUT", "/connectors/c/resume")
PAUSE = Request("PUT", "/connectors/c/pause")


def worker(
    state: str = "RUNNING",
    *,
    offsets: list[dict[str, object]] = OFFSET,
    polls: list[tuple[str, ...]] | None = None,
    faults: dict[str, list[Fault | None]] | None = None,
) -> FakeConnect:
    """A worker with connector c, whose config differs from the desired one."""
    return FakeConnect([], {"c": {"a": "0"}}, {"c": state}, {"c": offsets}, polls=polls or [], faults=faults or {})


@pytest.mark.parametrize(
    ("changes", "connect", "requests"),
    [
        pytest.param([], worker(), [], id="nothing"),
        pytest.param(
            [CREATE],
            FakeConnect(polls=[(), RUNNING]),
            [POST, GET_STATUS, GET_STATUS, GET_STATUS, GET_OFFSETS, SEEDING, RESUME],
            id="create",
        ),
        pytest.param(
            [CREATE],
            FakeConnect(offsets={"c": OFFSET}),
            [POST, GET_STATUS, GET_OFFSETS, RESUME],
            id="an old offset stays",
        ),
        pytest.param(
            [UPDATE],
            worker(polls=[RUNNING, RUNNING, ("STOPPED", "RUNNING")]),
            [GET_STATUS, STOP, GET_STATUS, GET_STATUS, GET_STATUS, PUT, GET_OFFSETS, RESUME],
            id="update",
        ),
        pytest.param(
            [UPDATE],
            worker(polls=[("RUNNING", "FAILED"), ("RUNNING", "FAILED")]),
            [GET_STATUS, STOP, GET_STATUS, GET_STATUS, PUT, GET_OFFSETS, RESUME],
            id="update with a failed task",
        ),
        pytest.param(
            [UPDATE],
            worker(polls=[("FAILED",)]),
            [GET_STATUS, STOP, GET_STATUS, PUT, GET_OFFSETS, RESUME],
            id="update of a failed connector",
        ),
        pytest.param(
            [UPDATE],
            worker(polls=[(), ()]),
            [GET_STATUS, STOP, GET_STATUS, GET_STATUS, PUT, GET_OFFSETS, RESUME],
            id="update without a status yet",
        ),
        # Debezium ignores an offset with a different prefix, and would start at the server's LSN.
        pytest.param(
            [UPDATE],
            worker(offsets=stored({"lsn": 9}, "old")),
            [GET_STATUS, STOP, GET_STATUS, PUT, GET_OFFSETS, SEEDING, RESUME],
            id="update of the prefix",
        ),
        pytest.param([STATE], worker("PAUSED"), [GET_STATUS, RESUME], id="paused manually"),
        pytest.param(
            [STATE], worker("STOPPED"), [GET_STATUS, STOP, GET_STATUS, GET_OFFSETS, RESUME], id="stopped manually"
        ),
        pytest.param([UPDATE], worker("PAUSED"), [GET_STATUS, PUT], id="update while paused"),
        pytest.param([UPDATE], worker("STOPPED"), [GET_STATUS, PUT], id="update while stopped"),
        pytest.param(
            [START], worker("STOPPED", offsets=[]), [GET_STATUS, GET_OFFSETS, SEEDING, RESUME], id="interrupted"
        ),
        pytest.param(
            [UPDATE, START],
            worker("STOPPED"),
            [GET_STATUS, PUT, GET_STATUS, GET_OFFSETS, RESUME],
            id="interrupted, changed",
        ),
    ],
)
def test_apply(serve: Serve, changes: list[Change], connect: FakeConnect, requests: list[Request]) -> None:
    server = serve(connect)
    messages: list[str] = []
    apply(client(server), "c", {"a": "1"}, changes, start=StartPosition("p", 5), progress=messages.append)
    assert server.seen == requests
    assert messages == [change.title for change in changes]


def test_removes_the_named_connector(serve: Serve) -> None:
    connect = FakeConnect(configs={"old name": {}, "c": {}}, states={"old name": "RUNNING", "c": "RUNNING"})
    server = serve(connect)
    change = Change("connect", "connector", "old name", "delete", "")
    apply(client(server), "c", {"a": "1"}, [change], start=StartPosition("p", 5), progress=silent)
    assert writes(server) == ["PUT /connectors/old%20name/stop", "DELETE /connectors/old%20name"]
    assert connect.configs == {"c": {}}


def test_does_not_change_offsets_before_the_connector_has_stopped(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "STOP_TIMEOUT_S", 0.1)
    server = serve(worker("STOPPED", polls=[("STOPPED", "RUNNING")] * 9))
    with pytest.raises(WaitTimeoutError, match=r"c to be STOPPED .*; last seen: connector STOPPED"):
        apply(client(server), "c", {}, [START], start=StartPosition("p", 5), progress=silent)
    assert {request.path for request in server.seen} == {"/connectors/c/status"}


def test_does_not_start_the_connector_after_rejected_seeding(serve: Serve) -> None:
    rejected = Fault(error(400, "Connectors must be in the STOPPED state"))
    connect = worker("STOPPED", offsets=[], faults={"PATCH offsets": [rejected]})
    with pytest.raises(RejectedError, match="STOPPED state"):
        apply(client(serve(connect)), "c", {}, [START], start=StartPosition("p", 5), progress=silent)
    assert connect.states == {"c": "STOPPED"}


def test_does_not_change_the_config_before_the_connector_has_stopped(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status RUNNING of the old task could be mistaken for the status of the new task."""
    monkeypatch.setattr(lifecycle, "STOP_TIMEOUT_S", 0.1)
    connect = worker(polls=[RUNNING] * 9)
    server = serve(connect)
    with pytest.raises(WaitTimeoutError, match=r"c to be STOPPED .*; last seen: connector RUNNING"):
        apply(client(server), "c", {"a": "1"}, [UPDATE], start=StartPosition("p", 5), progress=silent)
    assert PUT not in server.seen
    assert server.seen[-2:] == [GET_CONFIG, RESUME], "resumed under the old config"
    assert (connect.configs["c"], connect.states["c"]) == ({"a": "0"}, "RUNNING")


REJECTED, CRASH = Fault(error(400, "it is invalid")), Fault(error(500, "internal"))
LOST = Fault(error(500, "Request timed out"))
RESTORED = "; connector c keeps its previous config, and state {} was requested"
LEFT_STOPPED = "; connector c may be STOPPED, and the server then retains WAL: run `outbox apply` again"


@pytest.mark.parametrize(
    ("faults", "state", "requests", "message_end"),
    [
        ({"PUT config": [REJECTED]}, "running", [PUT, RESUME], RESTORED.format("running")),
        ({"PUT config": [Fault((403, {"message": "no"}))]}, "running", [PUT, RESUME], RESTORED.format("running")),
        ({"PUT config": [CRASH]}, "running", [PUT, RESUME], RESTORED.format("running")),
        ({"PUT config": [CRASH]}, "paused", [PUT, PAUSE], RESTORED.format("paused")),
        ({"PUT config": [CRASH]}, "stopped", [PUT], RESTORED.format("stopped")),
        ({"PUT config": [Fault(CRASH.answer, done=True)]}, "running", [PUT], LEFT_STOPPED),
        ({"PUT config": [CRASH], "GET config": [CRASH]}, "running", [PUT], LEFT_STOPPED),
        ({"PUT config": [CRASH], "PUT resume": [CRASH]}, "running", [PUT, RESUME], LEFT_STOPPED),
        ({"PATCH offsets": [REJECTED]}, "running", [PUT, SEEDING], LEFT_STOPPED),
        ({"GET offsets": [CRASH]}, "running", [PUT], LEFT_STOPPED),
    ],
)
def test_failed_update_restarts_a_healthy_connector(
    serve: Serve, faults: dict[str, list[Fault | None]], state: State, requests: list[Request], message_end: str
) -> None:
    connect = worker(offsets=[], faults=faults)
    server = serve(connect)
    with pytest.raises(RejectedError) as caught:
        apply(client(server), "c", {"a": "1"}, [UPDATE], start=StartPosition("p", 5), progress=silent, state=state)
    assert caught.value.message.endswith(message_end)
    assert [request for request in server.seen if request.method != "GET"] == [STOP, *requests]
    assert connect.states["c"] == ("STOPPED" if message_end == LEFT_STOPPED else state.upper())


@pytest.mark.parametrize(("written", "state"), [(False, "RUNNING"), (True, "STOPPED")])
def test_an_interrupted_update_restores_the_connector_or_names_the_command(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, written: bool, state: str
) -> None:
    """Ctrl-C is pressed before the new config is written, or afterwards."""
    connect, messages = worker(offsets=[]), list[str]()

    def interrupt(*_: object, **__: object) -> None:
        if written:
            connect.configs["c"] = {"a": "1"}
        raise KeyboardInterrupt

    monkeypatch.setattr("outbox_kit.connect.apply.put_config", interrupt)
    with pytest.raises(KeyboardInterrupt):
        apply(client(serve(connect)), "c", {"a": "1"}, [UPDATE], start=StartPosition("p", 5), progress=messages.append)
    assert connect.states["c"] == state
    assert f"; {messages[-1]}" == (LEFT_STOPPED if written else RESTORED.format("running"))


def test_failed_poll_does_not_end_the_update(serve: Serve) -> None:
    """On a busy worker, the polls for the result of a write can also fail."""
    server = serve(worker(faults={"PUT config": [Fault(LOST.answer, done=True)], "GET config": [LOST]}))
    assert apply(client(server), "c", {"a": "1"}, [UPDATE], start=StartPosition("p", 5), progress=silent)
    assert server.seen == [GET_STATUS, STOP, GET_STATUS, PUT, GET_CONFIG, GET_CONFIG, GET_OFFSETS, RESUME]
