"""Writes without a response: made once, or again when it is certain that they were not made."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.connect.samples import written
from tests.unit.support import Request, Script, ScriptedServer

from outbox_kit.changes import Change
from outbox_kit.connect import confirmed_writes
from outbox_kit.connect import lifecycle as connect_lifecycle
from outbox_kit.connect.apply import apply
from outbox_kit.connect.client import ConnectClient
from outbox_kit.connect.lifecycle import put_config, remove, stop
from outbox_kit.connect.offset_seeding import StartPosition
from outbox_kit.connect.rest import AlreadyExistsError, NotFoundError, UnknownOutcomeError
from outbox_kit.errors import RejectedError, WaitTimeoutError
from outbox_kit.pipeline import HttpService
from outbox_kit.progress import silent

Serve = Callable[[Script], ScriptedServer]
Answer = tuple[int, object]
SEED = {"lsn": 5, "lsn_proc": 5, "lsn_commit": 5}
CONFIG = written({"a": "1"})
TIMED_OUT: Answer = (500, {"error_code": 500, "message": "Request timed out. The worker is currently starting"})
ABSENT: Answer = (404, {"error_code": 404, "message": "Connector c not found"})
NO_STATUS: Answer = (404, {"error_code": 404, "message": "No status found for connector c"})
EXISTS: Answer = (409, {"error_code": 409, "message": "Connector c already exists"})
REFUSED: Answer = (400, {"error_code": 400, "message": "Connector configuration is invalid"})
LIVE: Answer = (200, {**CONFIG, "name": "c"})
OLD: Answer = (200, written({"a": "0"}))
STOPPED: Answer = (200, {"connector": {"state": "STOPPED"}, "tasks": []})
RUNS: Answer = (200, {"connector": {"state": "RUNNING"}, "tasks": [{"state": "RUNNING"}]})
OFFSET: Answer = (200, {"offsets": [{"partition": {"server": "p"}, "offset": SEED}]})
NO_OFFSET: Answer = (200, {"offsets": []})
DONE: Answer = (202, None)
CREATE, START = Change("connect", "connector", "c", "create", ""), Change("connect", "start", "c", "create", "")
PUT = Request("PUT", "/connectors/c/config", CONFIG)
POST = Request("POST", "/connectors", {"name": "c", "config": CONFIG, "initial_state": "STOPPED"})


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confirmed_writes, "CONFIRM_TIMEOUT_S", 0)  # one poll
    monkeypatch.setattr(connect_lifecycle, "REMOVE_TIMEOUT_S", 0.3)
    monkeypatch.setattr(connect_lifecycle, "STOP_TIMEOUT_S", 0.3)


def client(server: ScriptedServer) -> ConnectClient:
    return ConnectClient(HttpService(url=server.url))


def writes(server: ScriptedServer) -> list[str]:
    return [f"{request.method} {request.path}" for request in server.seen if request.method != "GET"]


@pytest.mark.parametrize(
    ("script", "puts"),
    [
        ([(200, {})], 1),
        ([TIMED_OUT, LIVE], 1),
        ([TIMED_OUT, OLD, (200, {})], 2),
        ([TIMED_OUT, OLD, TIMED_OUT, LIVE], 2),
    ],
    ids=["answered", "happened", "did not happen", "happened the second time"],
)
def test_makes_an_update(serve: Serve, script: Script, puts: int) -> None:
    server = serve(script)
    messages: list[str] = []
    put_config(client(server), "c", CONFIG, messages.append)
    assert [request for request in server.seen if request.method == "PUT"] == [PUT] * puts
    assert ("checking the outcome" in " ".join(messages)) is (TIMED_OUT in script)


def test_reports_an_unconfirmed_update_after_two_attempts(serve: Serve) -> None:
    server = serve([TIMED_OUT, OLD, TIMED_OUT, OLD])
    with pytest.raises(UnknownOutcomeError, match="Request timed out") as caught:
        put_config(client(server), "c", CONFIG, silent)
    assert writes(server) == ["PUT /connectors/c/config"] * 2
    assert "outbox plan" in caught.value.hint


def test_does_not_repeat_a_rejected_update(serve: Serve) -> None:
    server = serve([REFUSED])
    with pytest.raises(RejectedError, match="configuration is invalid"):
        put_config(client(server), "c", CONFIG, silent)
    assert len(server.seen) == 1


def create(server: ScriptedServer) -> None:
    apply(client(server), "c", CONFIG, [CREATE], start=StartPosition("p", 5), progress=silent)


@pytest.mark.parametrize(
    ("script", "posts"),
    [
        ([TIMED_OUT, LIVE, STOPPED, OFFSET, DONE], 1),
        ([TIMED_OUT, ABSENT, (201, {}), STOPPED, OFFSET, DONE], 2),
        ([TIMED_OUT, ABSENT, EXISTS, LIVE, STOPPED, OFFSET, DONE], 2),
    ],
    ids=["happened", "did not happen", "happened late"],
)
def test_creates_a_connector_once(serve: Serve, script: Script, posts: int) -> None:
    server = serve(script)
    create(server)
    assert [request for request in server.seen if request.method == "POST"] == [POST] * posts
    assert writes(server)[-1] == "PUT /connectors/c/resume"


@pytest.mark.parametrize("script", [[EXISTS], [TIMED_OUT, ABSENT, EXISTS, OLD]], ids=["at once", "after a time-out"])
def test_does_not_take_over_a_connector_of_another_client(serve: Serve, script: Script) -> None:
    server = serve(script)
    with pytest.raises(AlreadyExistsError):
        create(server)
    assert "PUT /connectors/c/resume" not in writes(server)


@pytest.mark.parametrize(
    ("script", "patches"),
    [
        ([STOPPED, NO_OFFSET, TIMED_OUT, OFFSET, DONE], 1),
        ([STOPPED, NO_OFFSET, TIMED_OUT, NO_OFFSET, (200, {}), DONE], 2),
    ],
)
def test_does_not_start_a_connector_before_its_offset_is_confirmed(serve: Serve, script: Script, patches: int) -> None:
    server = serve(script)
    apply(client(server), "c", CONFIG, [START], start=StartPosition("p", 5), progress=silent)
    assert writes(server) == ["PATCH /connectors/c/offsets"] * patches + ["PUT /connectors/c/resume"]


def test_waits_for_a_stop_without_a_response(serve: Serve) -> None:
    server = serve([TIMED_OUT, RUNS, STOPPED])
    stop(client(server), "c")
    assert writes(server) == ["PUT /connectors/c/stop"]


# --- remove

GONE = ["PUT /connectors/c/stop", "DELETE /connectors/c"]


@pytest.mark.parametrize(
    ("script", "offsets", "written_"),
    [
        ([ABSENT], False, []),
        ([LIVE, DONE, RUNS, STOPPED, (204, None), STOPPED, NO_STATUS, ABSENT], False, GONE),
        # the status may be removed before the config
        ([LIVE, DONE, STOPPED, (204, None), NO_STATUS, LIVE, NO_STATUS, ABSENT], False, GONE),
        ([LIVE, DONE, STOPPED, ABSENT], False, GONE),
        ([LIVE, DONE, STOPPED, TIMED_OUT, NO_STATUS, ABSENT], False, GONE),
        (
            [LIVE, DONE, STOPPED, (200, {}), (204, None), NO_STATUS, ABSENT],
            True,
            [GONE[0], "DELETE /connectors/c/offsets", GONE[1]],
        ),
    ],
    ids=["not there", "deleted", "config later", "deleted by another client", "no response", "with its offsets"],
)
def test_remove_waits_for_the_deletion(serve: Serve, script: Script, offsets: bool, written_: list[str]) -> None:
    server = serve(script)
    remove(client(server), "c", offsets=offsets)
    assert writes(server) == written_
    assert len(server.seen) == len(script)


def test_reports_a_connector_that_is_not_deleted(serve: Serve) -> None:
    server = serve([LIVE, DONE, STOPPED, (204, None), STOPPED])
    with pytest.raises(WaitTimeoutError, match="connector c to be deleted; last seen: connector STOPPED"):
        remove(client(server), "c")


def test_apply_removes_the_named_connector(serve: Serve) -> None:
    server = serve([(200, {}), DONE, STOPPED, (204, None), NO_STATUS, ABSENT])
    change = Change("connect", "connector", "old name", "delete", "")
    apply(client(server), "c", CONFIG, [change], start=StartPosition("p", 5), progress=silent)
    assert writes(server) == ["PUT /connectors/old%20name/stop", "DELETE /connectors/old%20name"]


def test_rejects_stopping_a_missing_connector(serve: Serve) -> None:
    with pytest.raises(NotFoundError):
        stop(client(serve([ABSENT])), "c")
