"""Apply of the connector: its start position, recovery, and rollback after a failure."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.connect_samples import written
from tests.unit.deployment.samples import (
    CONFIRMED,
    NAME,
    PLUGINS,
    Deployed,
    Serve,
    deployed_connector,
    registered,
    service,
    stored,
)
from tests.unit.fake_connect import FakeConnect, Fault, error
from tests.unit.fake_postgres import FakePostgres
from tests.unit.postgres.samples import DEPLOYED
from tests.unit.support import Request, ScriptedServer

from outbox_events.errors import RefusedError, RejectedError
from outbox_kit.connect.offset_seeding import seed
from outbox_kit.connect.state import ActualConnector
from outbox_kit.deployment import apply, plan
from outbox_kit.kafka.topic_identity import types_with_pending_backfill
from outbox_kit.operations.preconditions import refuse_unsafe_start
from outbox_kit.pipeline import Lock
from outbox_kit.results import silent

PATH = f"/connectors/{NAME}"
SERVER_LSN = DEPLOYED.wal_position
SEEDED = [{"partition": {"server": "library"}, "offset": seed(CONFIRMED)}]
STOP, RESUME = Request("PUT", f"{PATH}/stop"), Request("PUT", f"{PATH}/resume")
pytestmark = pytest.mark.usefixtures("database", "kafka")


def writes(server: ScriptedServer) -> list[Request]:
    return [request for request in server.seen if request.method != "GET" and request.path.startswith(PATH)]


@pytest.mark.parametrize(
    ("lsn", "update", "seeded"),
    [
        (SERVER_LSN, {}, False),
        (CONFIRMED, {}, False),
        (SERVER_LSN + 1, {}, True),
        (CONFIRMED - 1, {}, True),
        (SERVER_LSN, {"unfinished": "recover"}, True),
        (SERVER_LSN, {"config": None}, True),
    ],
    ids=["at the server", "at the slot", "beyond the server", "before the slot", "recovering", "first config"],
)
def test_uses_the_offset_of_a_deleted_connector_only_if_valid(
    serve: Serve,
    deployed: Deployed,
    monkeypatch: pytest.MonkeyPatch,
    lock: Lock,
    lsn: int,
    update: dict[str, object],
    seeded: bool,
) -> None:
    """The database was restored after the deletion. PostgreSQL would skip rows up to the offset without an error."""
    monkeypatch.setattr(plan, "refuse_reader_elsewhere", lambda *_: None)  # the slot of the sample is always active
    deployed().write_lock(lock.model_copy(update={"config": {"a": "1"}, **update}))
    connect = FakeConnect(PLUGINS, offsets={NAME: stored(lsn)})
    apply(deployed(connect=service(serve(connect)), registry=service(serve(registered(lock)))), silent)
    assert connect.states == {NAME: "RUNNING"}
    assert connect.offsets[NAME] == (SEEDED if seeded else stored(lsn))


def test_rolls_back_a_start_after_an_interruption(serve: Serve, deployed: Deployed, lock: Lock) -> None:
    """The apply was interrupted after writing a config that fails, so the only pending change is the start."""
    valid = written({**deployed().render(lock), "poll.interval.ms": "77"})
    deployed().write_lock(lock.model_copy(update={"config": valid, "unfinished": "update"}))
    connect = deployed_connector(deployed().render(lock), "STOPPED")
    connect.fails = lambda config: config != valid
    with pytest.raises(RejectedError, match=r"rolled back .* RUNNING"):
        apply(deployed(connect=service(serve(connect)), registry=service(serve(registered(lock)))), silent)
    assert (connect.configs[NAME], connect.states[NAME]) == (valid, "RUNNING")


def test_a_config_that_lost_records_requires_backfills(serve: Serve, deployed: Deployed, lock: Lock) -> None:
    """The backfill is recorded before the config is written, so that an interrupted apply does not hide the loss."""
    config = written(deployed().render(lock))
    deployed().write_lock(lock.model_copy(update={"config": config}))
    connect = deployed_connector(deployed().render(lock))
    connect.configs[NAME] |= {"skipped.operations": "c"}
    pending_types: list[list[str]] = []

    def read_pending_types(current: dict[str, str]) -> bool:
        if current == config:
            pending_types.append(types_with_pending_backfill((deployed().lock() or lock).topics))
        return False

    connect.fails = read_pending_types
    changes = apply(deployed(connect=service(serve(connect)), registry=service(serve(registered(lock)))), silent)
    assert [("outbox stuck --resend" in change.loss, change.danger) for change in changes] == [(True, "")]
    assert connect.configs[NAME] == config
    assert pending_types[0] == pending_types[-1] == ["author", "book"]


def test_connector_recovery_steps(serve: Serve, deployed: Deployed, lock: Lock, database: FakePostgres) -> None:
    """Stop before the new slot is read, delete the offsets before seeding, and start last."""
    database.actual = replace(DEPLOYED, timeline=2)
    deployed().write_lock(lock)
    recovery = {"source": None, "source_epoch": 3, "unfinished": "recover", "cluster_id": deployed().kafka.cluster_id()}
    recovering = lock.model_copy(update=recovery)
    connect = deployed_connector(deployed().render(lock), lsn=SERVER_LSN + 1)
    server = serve(connect)
    slot_reads: list[tuple[str, Lock | None]] = []

    def is_read() -> bool:
        slot_reads.append((connect.states[NAME], deployed().lock()))
        return connect.states[NAME] == "RUNNING"

    database.is_read = is_read
    changes = apply(deployed(connect=service(server), registry=service(serve(registered(lock)))), silent, recover=True)
    # The slot is read for the plan and then for the identity in the lock file.
    assert slot_reads[:2] == [("RUNNING", lock), ("STOPPED", recovering)]
    assert writes(server) == [
        STOP,
        STOP,
        Request("DELETE", f"{PATH}/offsets"),
        Request("PUT", f"{PATH}/config", written(deployed().render(recovering))),
        Request("PATCH", f"{PATH}/offsets", {"offsets": SEEDED}),
        RESUME,
    ]
    assert [change.kind for change in changes] == ["offsets", "connector", "start"]
    finished = deployed().lock()
    assert finished is not None
    assert finished.source is not None
    assert (finished.source.timeline, finished.source_epoch, finished.unfinished) == (2, 3, None)


def test_records_a_recovery_before_any_change(
    serve: Serve, deployed: Deployed, lock: Lock, database: FakePostgres
) -> None:
    """If the first step fails, resume is rejected, and an apply without --recover stops the connector again."""
    database.actual = replace(DEPLOYED, timeline=2)
    deployed().write_lock(lock)
    recorded = lock.model_copy(update={"source": None, "source_epoch": 3, "unfinished": "recover"})
    for recover in (True, False):
        connect = deployed_connector(deployed().render(lock))
        connect.faults = {"PUT stop": [Fault(error(403, "Forbidden"))]}
        server = serve(connect)
        with pytest.raises(RejectedError, match="Forbidden"):
            apply(deployed(connect=service(server), registry=service(serve(registered(lock)))), silent, recover=recover)
        assert writes(server) == [STOP]
        assert deployed().lock() == recorded, "the epoch is raised once"
    with pytest.raises(RefusedError, match="a recovery was interrupted"):
        refuse_unsafe_start(deployed(), ActualConnector({}, None, []))


def test_records_the_backfill_that_the_caller_of_a_recovery_completes(
    serve: Serve, deployed: Deployed, lock: Lock, database: FakePostgres
) -> None:
    """Otherwise, an apply that completes an interrupted `recover` would hide the missing events."""
    database.actual = replace(DEPLOYED, timeline=2)
    for before_start, pending in ((None, False), (lambda _: None, True)):
        deployed().write_lock(lock)
        connect = deployed_connector(deployed().render(lock))
        connect.faults = {"PUT stop": [Fault(error(403, "Forbidden"))]}
        deployment = deployed(connect=service(serve(connect)), registry=service(serve(registered(lock))))
        with pytest.raises(RejectedError, match="Forbidden"):
            apply(deployment, silent, recover=True, before_start=before_start)
        interrupted = deployed().lock()
        assert interrupted is not None
        assert bool(types_with_pending_backfill(interrupted.topics)) is pending
