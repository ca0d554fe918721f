"""Apply of the connector: where it starts, recovery, and rollback after a failure."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.connect.samples import written
from tests.unit.deployment.samples import CONFIRMED, PLUGINS, Deployed, Given, Serve, registered, service
from tests.unit.fake_connect import FakeConnect
from tests.unit.postgres.samples import DEPLOYED
from tests.unit.support import Request, ScriptedServer

from outbox_kit.connect.offset_seeding import seed
from outbox_kit.connect.state import ActualConnector
from outbox_kit.deployment import Plan, apply, execution
from outbox_kit.errors import RefusedError, RejectedError
from outbox_kit.operations.resume_guard import refuse_unsafe_start
from outbox_kit.pipeline import Lock
from outbox_kit.progress import Reporter, silent

NAME = "library-outbox"
PATH = f"/connectors/{NAME}"
SERVER_AT = DEPLOYED.wal_position
STOP, RESUME = Request("PUT", f"{PATH}/stop"), Request("PUT", f"{PATH}/resume")


def stored(lsn: int) -> list[dict[str, object]]:
    """Offsets as Debezium commits them."""
    return [{"partition": {"server": "library"}, "offset": {"lsn": lsn, "messageType": "INSERT"}}]


def deployed_connector(config: dict[str, str], state: str = "RUNNING", lsn: int = SERVER_AT) -> FakeConnect:
    return FakeConnect(PLUGINS, {NAME: written(config)}, {NAME: state}, {NAME: stored(lsn)})


def writes(server: ScriptedServer) -> list[Request]:
    return [request for request in server.seen if request.method != "GET" and request.path.startswith(PATH)]


@pytest.mark.parametrize(
    ("lsn", "update", "seeded"),
    [
        (SERVER_AT, {}, False),
        (CONFIRMED, {}, False),
        (SERVER_AT + 1, {}, True),
        (CONFIRMED - 1, {}, True),
        (SERVER_AT, {"unfinished": "recover"}, True),
        (SERVER_AT, {"config": None}, True),
    ],
    ids=["at the server", "at the slot", "beyond the server", "before the slot", "recovering", "first config"],
)
def test_uses_the_offset_of_a_deleted_connector_only_if_valid(
    serve: Serve,
    deployed: Deployed,
    lock: Lock,
    given: Given,
    monkeypatch: pytest.MonkeyPatch,
    lsn: int,
    update: dict[str, object],
    seeded: bool,
) -> None:
    """Deleted with REST, then the database was restored: rows up to the offset would be skipped without an error."""
    given(DEPLOYED)
    now = lock.model_copy(update={"config": {"a": "1"}, **update})
    deployed().write_lock(now)
    monkeypatch.setattr(execution, "apply_prerequisites", lambda *_: now)
    connect = FakeConnect(PLUGINS, offsets={NAME: stored(lsn)})
    apply(deployed(connect=service(serve(connect)), registry=service(serve(registered(lock)))), silent)
    assert connect.states == {NAME: "RUNNING"}
    expected = [{"partition": {"server": "library"}, "offset": seed(CONFIRMED)}] if seeded else stored(lsn)
    assert connect.offsets[NAME] == expected


def test_rolls_back_a_start_after_an_interruption(
    serve: Serve, deployed: Deployed, lock: Lock, given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted between writing a config that fails and the resume: only the start is left to do."""
    given(DEPLOYED)
    valid = written({**deployed().render(lock), "poll.interval.ms": "77"})
    now = lock.model_copy(update={"config": valid, "unfinished": "update"})
    deployed().write_lock(now)
    monkeypatch.setattr(execution, "apply_prerequisites", lambda *_: now)
    connect = deployed_connector(deployed().render(lock), "STOPPED")
    connect.fails = lambda config: config != valid
    with pytest.raises(RejectedError, match=r"rolled back to the last working config .* connector RUNNING"):
        apply(deployed(connect=service(serve(connect)), registry=service(serve(registered(lock)))), silent)
    assert (connect.configs[NAME], connect.states[NAME]) == (valid, "RUNNING")


def test_connector_recovery_steps(
    serve: Serve, deployed: Deployed, lock: Lock, given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped before the slot is read, its offsets deleted before it gets new ones, started last."""
    given(replace(DEPLOYED, timeline=2))
    deployed().write_lock(lock)
    after = lock.model_copy(update={"source_epoch": 3, "unfinished": "recover"})
    connect = deployed_connector(deployed().render(lock), lsn=SERVER_AT + 1)
    server = serve(connect)
    prepared: list[bool] = []

    def apply_prerequisites(_: object, plan: Plan, __: Reporter) -> Lock:
        prepared.append(plan.recover)
        assert connect.states == {NAME: "STOPPED"}
        assert deployed().lock() == after.model_copy(update={"source": None}), "recorded"
        return after

    monkeypatch.setattr(execution, "apply_prerequisites", apply_prerequisites)
    changes = apply(deployed(connect=service(server), registry=service(serve(registered(lock)))), silent, recover=True)
    offsets = {"offsets": [{"partition": {"server": "library"}, "offset": seed(CONFIRMED)}]}
    assert writes(server) == [
        STOP,
        STOP,
        Request("DELETE", f"{PATH}/offsets"),
        Request("PUT", f"{PATH}/config", written(deployed().render(after))),
        Request("PATCH", f"{PATH}/offsets", offsets),
        RESUME,
    ]
    assert prepared == [True]
    assert [change.kind for change in changes] == ["offsets", "connector", "start"]


def test_records_a_recovery_before_any_change(
    serve: Serve, deployed: Deployed, lock: Lock, given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails at its first step: resume is rejected from then on, and a plain apply stops the connector again."""

    def apply_prerequisites(*_: object) -> Lock:
        raise InterruptedError

    given(replace(DEPLOYED, timeline=2))
    monkeypatch.setattr(execution, "apply_prerequisites", apply_prerequisites)
    deployed().write_lock(lock)
    recorded = lock.model_copy(update={"source": None, "source_epoch": 3, "unfinished": "recover"})
    for recover in (True, False):
        server = serve(deployed_connector(deployed().render(lock)))
        with pytest.raises(InterruptedError):
            apply(deployed(connect=service(server), registry=service(serve(registered(lock)))), silent, recover=recover)
        assert writes(server) == [STOP]
        assert deployed().lock() == recorded, "the epoch is raised once"
    with pytest.raises(RefusedError, match="`outbox apply --recover` was interrupted"):
        refuse_unsafe_start(deployed(), ActualConnector({}, None, []))
