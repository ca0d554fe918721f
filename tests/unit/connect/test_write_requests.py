"""Writes without a response are repeated only if they had no effect."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.connect_samples import CREATE, SEED, START, Serve, client, stored, writes, written
from tests.unit.fake_connect import FakeConnect, Fault, error
from tests.unit.support import Request, ScriptedServer

from outbox_events.errors import RejectedError
from outbox_kit.connect import write_requests
from outbox_kit.connect.apply import apply
from outbox_kit.connect.lifecycle import put_config
from outbox_kit.connect.offset_seeding import StartPosition
from outbox_kit.connect.rest import AlreadyExistsError, UnknownOutcomeError
from outbox_kit.results import silent

CONFIG, OLD = written({"a": "1"}), written({"a": "0"})
LOST = Fault(error(500, "Request timed out. The worker is currently starting"))
LOST_BUT_DONE = replace(LOST, done=True)
ABSENT = Fault(error(404, "Connector c not found"))
POST, PUT, PATCH = "POST /connectors", "PUT /connectors/c/config", "PATCH /connectors/c/offsets"
RESUME = "PUT /connectors/c/resume"


@pytest.fixture(autouse=True)
def one_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_requests, "CONFIRM_TIMEOUT_S", 0)


def worker(**faults: list[Fault]) -> FakeConnect:
    """A worker with the stopped connector c. Keyword arguments `METHOD_resource` set its faults."""
    faults_by_request: dict[str, list[Fault | None]] = {
        name.replace("_", " "): [*request_faults] for name, request_faults in faults.items()
    }
    return FakeConnect(configs={"c": OLD}, states={"c": "STOPPED"}, faults=faults_by_request)


@pytest.mark.parametrize(
    ("faults", "attempts"),
    [([], 1), ([LOST_BUT_DONE], 1), ([LOST], 2), ([LOST, LOST_BUT_DONE], 2)],
    ids=["response", "done", "not done", "done the second time"],
)
def test_makes_an_update(serve: Serve, faults: list[Fault], attempts: int) -> None:
    connect = worker(PUT_config=faults)
    server = serve(connect)
    messages: list[str] = []
    put_config(client(server), "c", CONFIG, messages.append)
    assert connect.configs == {"c": CONFIG}
    updates = [request for request in server.seen if request.method == "PUT"]
    assert updates == [Request("PUT", "/connectors/c/config", CONFIG)] * attempts
    assert ("checking whether" in " ".join(messages)) is bool(faults)


def test_reports_an_unconfirmed_update_after_two_attempts(serve: Serve) -> None:
    server = serve(worker(PUT_config=[LOST, LOST]))
    with pytest.raises(UnknownOutcomeError, match="Request timed out") as caught:
        put_config(client(server), "c", CONFIG, silent)
    assert writes(server) == [PUT, PUT]
    assert "outbox plan" in caught.value.hint


def test_does_not_repeat_a_rejected_update(serve: Serve) -> None:
    server = serve(worker(PUT_config=[Fault(error(400, "Connector configuration is invalid"))]))
    with pytest.raises(RejectedError, match="configuration is invalid"):
        put_config(client(server), "c", CONFIG, silent)
    assert len(server.seen) == 1


def create(server: ScriptedServer) -> None:
    apply(client(server), "c", CONFIG, [CREATE], start=StartPosition("p", 5), progress=silent)


@pytest.mark.parametrize(
    ("faults", "attempts"),
    [
        ({"POST connectors": [LOST_BUT_DONE]}, 1),
        ({"POST connectors": [LOST]}, 2),
        ({"POST connectors": [LOST_BUT_DONE], "GET config": [ABSENT]}, 2),
    ],
    ids=["done", "not done", "done late"],
)
def test_creates_a_connector_once(serve: Serve, faults: dict[str, list[Fault | None]], attempts: int) -> None:
    connect = FakeConnect(faults=faults)
    server = serve(connect)
    create(server)
    body = {"name": "c", "config": CONFIG, "initial_state": "STOPPED"}
    assert server.seen.count(Request("POST", "/connectors", body)) == attempts
    assert writes(server) == [*[POST] * attempts, PATCH, RESUME]
    assert (connect.configs, connect.states) == ({"c": CONFIG}, {"c": "RUNNING"})


@pytest.mark.parametrize(
    "faults", [{}, {"POST_connectors": [LOST], "GET_config": [ABSENT]}], ids=["at once", "after a time-out"]
)
def test_does_not_take_over_a_connector_of_another_client(serve: Serve, faults: dict[str, list[Fault]]) -> None:
    connect = worker(**faults)
    with pytest.raises(AlreadyExistsError):
        create(serve(connect))
    assert (connect.configs, connect.states) == ({"c": OLD}, {"c": "STOPPED"})


@pytest.mark.parametrize(("fault", "attempts"), [(LOST_BUT_DONE, 1), (LOST, 2)], ids=["done", "not done"])
def test_does_not_start_a_connector_before_its_offset_is_confirmed(serve: Serve, fault: Fault, attempts: int) -> None:
    connect = worker(PATCH_offsets=[fault])
    server = serve(connect)
    apply(client(server), "c", CONFIG, [START], start=StartPosition("p", 5), progress=silent)
    assert writes(server) == [PATCH] * attempts + [RESUME]
    assert connect.offsets == {"c": stored(SEED)}
