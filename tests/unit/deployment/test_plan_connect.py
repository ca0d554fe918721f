"""Changes of the connector, and conditions under which plan refuses."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from tests.unit.deployment.samples import (
    CONFIRMED,
    NAME,
    PLUGINS,
    Deployed,
    Serve,
    deployed_connector,
    service,
    stored,
)
from tests.unit.fake_connect import FakeConnect
from tests.unit.fake_postgres import FakePostgres
from tests.unit.postgres.samples import DEPLOYED, SLOT

from outbox_events.errors import RefusedError
from outbox_kit.connect.offset_seeding import StartPosition
from outbox_kit.connect.state import EPOCH_KEY
from outbox_kit.deployment import source_epochs
from outbox_kit.deployment.execution import start_position
from outbox_kit.deployment.plan import add_dangers, lock_for, plan_connect
from outbox_kit.pipeline import Lock, Pipeline
from outbox_kit.results.changes import Change

pytestmark = pytest.mark.usefixtures("database", "kafka")


def test_plan_of_a_new_connector(serve: Serve, deployed: Deployed, lock: Lock) -> None:
    server = serve(FakeConnect(PLUGINS))
    changes = plan_connect(deployed(connect=service(server)), lock, [], DEPLOYED)
    assert [(change.object, change.action) for change in changes] == [("connector library-outbox", "create")]


def test_plan_of_an_unchanged_connector(serve: Serve, deployed: Deployed, lock: Lock) -> None:
    config = deployed().render(lock)
    server = serve(deployed_connector(config))
    assert plan_connect(deployed(connect=service(server)), lock, [], DEPLOYED) == []


def test_plan_reports_that_a_new_schema_changes_the_connector(serve: Serve, deployed: Deployed, lock: Lock) -> None:
    """The id of the new schema is not known yet, so the rendered config does not differ."""
    config = deployed().render(lock)
    server = serve(deployed_connector(config))
    before = [Change("registry", "schema", "library.book-value", "update", "payload of book")]
    changes = plan_connect(deployed(connect=service(server)), lock, before, DEPLOYED)
    assert [(change.object, change.action, change.after) for change in changes] == [
        ("connector library-outbox", "update", "schema versions and ids (known after apply)")
    ]


@pytest.mark.parametrize("missing", [entry["class"] for entry in PLUGINS])
def test_plan_rejects_plugins_that_the_worker_lacks(serve: Serve, deployed: Deployed, lock: Lock, missing: str) -> None:
    server = serve(FakeConnect([entry for entry in PLUGINS if entry["class"] != missing]))
    with pytest.raises(RefusedError, match=rf"(?m)lacks {re.escape(missing)}$"):
        plan_connect(deployed(connect=service(server)), lock, [], DEPLOYED)


@pytest.mark.parametrize("state", ["RUNNING", "STOPPED"])
def test_plan_rejects_a_connector_ahead_of_the_server(serve: Serve, deployed: Deployed, lock: Lock, state: str) -> None:
    """The server is read a second time, because the connector and the server may have advanced in between."""
    server = serve(deployed_connector(deployed().render(lock), state, DEPLOYED.wal_position + 1))
    with pytest.raises(RefusedError, match=f"only at {DEPLOYED.wal_position}"):
        plan_connect(deployed(connect=service(server)), lock, [], DEPLOYED)


@pytest.mark.parametrize(
    ("state", "edit", "new_schema"),
    [("STOPPED", {}, False), ("FAILED", {"poll.interval.ms": "7"}, False), ("FAILED", {}, True)],
    ids=["to be started", "to be restarted", "restarted for a schema"],
)
def test_plan_rejects_starting_a_connector_behind_its_slot(
    serve: Serve, deployed: Deployed, lock: Lock, state: str, edit: dict[str, str], new_schema: bool
) -> None:
    """Another client advanced the slot, so PostgreSQL would silently skip the rows up to the slot's LSN."""
    config = {**deployed().render(lock), **edit}
    connect = deployed_connector(config, "RUNNING" if state == "FAILED" else state, CONFIRMED - 1)
    connect.failed = {NAME} if state == "FAILED" else set()
    server = serve(connect)
    before = [Change("registry", "schema", "library.book-value", "update", "payload of book")] if new_schema else []
    with pytest.raises(RefusedError, match=r"slot 'library_outbox' is at 16/B374D848 .*, beyond") as actual:
        plan_connect(deployed(connect=service(server)), lock, before, DEPLOYED)
    assert "`outbox recover`" in actual.value.hint
    assert {request.method for request in server.seen} == {"GET"}


@pytest.mark.parametrize("state", ["RUNNING", "STOPPED"], ids=["nothing to do", "left stopped"])
def test_accepts_a_lagging_connector_that_is_not_started(
    serve: Serve, deployed: Deployed, lock: Lock, state: str
) -> None:
    """apply checks only connectors that it changes. verify and status check other connectors."""
    deployment = deployed()
    settings = deployment.environment.connector.model_copy(update={"state": state.lower()})
    environment = deployment.environment.model_copy(update={"connector": settings})
    server = serve(deployed_connector(deployment.render(lock), state, CONFIRMED - 1))
    actual = replace(deployed(connect=service(server)), environment=environment)
    assert plan_connect(actual, lock, [], DEPLOYED) == []


def test_concurrent_progress_is_not_a_slot_ahead(
    serve: Serve, deployed: Deployed, lock: Lock, database: FakePostgres
) -> None:
    """The server is read again, and its slot is then ahead of the offset that was read earlier."""
    assert DEPLOYED.slot is not None
    earlier_read = replace(DEPLOYED, wal_position=CONFIRMED - 1)
    database.actual = replace(DEPLOYED, slot=replace(SLOT, confirmed_flush=0x1700000000))
    live = {**deployed().render(lock), "poll.interval.ms": "7"}
    server = serve(deployed_connector(live))
    changes = plan_connect(deployed(connect=service(server)), lock, [], earlier_read)
    assert [change.object for change in changes] == ["connector library-outbox"]


def test_plan_rejects_an_outdated_lock_file(serve: Serve, deployed: Deployed, lock: Lock) -> None:
    live = deployed().render(lock.model_copy(update={"source_epoch": 3}))
    assert live[EPOCH_KEY] == "3"
    server = serve(deployed_connector(live))
    with pytest.raises(RefusedError, match=r"source epoch 3, .* source epoch"):
        plan_connect(deployed(connect=service(server)), lock, [], DEPLOYED)


def test_plan_rejects_a_connector_without_a_lock_file(serve: Serve, deployed: Deployed, lock: Lock) -> None:
    first = deployed().render(lock.model_copy(update={"source_epoch": 1}))
    server = serve(deployed_connector(first))
    with pytest.raises(RefusedError, match="the lock file does not contain its slot"):
        plan_connect(deployed(connect=service(server)), None, [], DEPLOYED)


def test_lock_for_is_the_lock_file(deployed: Deployed, lock: Lock) -> None:
    deployment = deployed()
    assert lock_for(deployment, recover=False) is None
    deployment.write_lock(lock)
    assert lock_for(deployment, recover=False) == lock


def test_lock_for_recovery_increments_the_epoch_and_clears_the_source(deployed: Deployed, lock: Lock) -> None:
    deployment = deployed()
    deployment.write_lock(lock)
    actual = lock_for(deployment, recover=True)
    assert actual == lock.model_copy(update={"source": None, "source_epoch": 3, "unfinished": "recover"})
    assert actual.schemas == lock.schemas
    assert deployment.lock() == lock, "only apply writes it"


@pytest.mark.parametrize(("written", "epoch"), [(0, 2), (1, 2), (7, 8)])
def test_lock_for_recovery_without_a_lock_file(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch, written: int, epoch: int
) -> None:
    """Only the records show which epochs have been written."""
    monkeypatch.setattr(source_epochs, "highest_epoch", lambda *_, **__: written)
    expected = Lock(pipeline="library", environment="fixed", source_epoch=epoch, unfinished="recover")
    assert lock_for(deployed(), recover=True) == expected


def test_lock_for_recovery_exceeds_every_epoch_on_the_topics(
    deployed: Deployed, lock: Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock file was reverted, and the connector no longer exists."""
    monkeypatch.setattr(source_epochs, "highest_epoch", lambda *_, **__: 7)
    deployment = deployed()
    deployment.write_lock(lock)
    recovering = lock_for(deployment, recover=True)
    assert recovering is not None
    assert recovering.source_epoch == 8


def test_recovery_increments_the_epoch_of_the_connector_if_the_lock_file_is_outdated(
    serve: Serve, deployed: Deployed, lock: Lock
) -> None:
    """The lock file was reverted. Sinks would ignore the states of an epoch that is not higher."""
    live = deployed().render(lock.model_copy(update={"source_epoch": 7}))
    deployment = deployed(connect=service(serve(deployed_connector(live))))
    deployment.write_lock(lock)
    recovering = lock_for(deployment, recover=True)
    assert recovering is not None
    assert recovering.source_epoch == 8
    assert plan_connect(deployment, recovering, [], DEPLOYED, recover=True)


@pytest.mark.parametrize(
    "offsets",
    [stored(CONFIRMED), stored(DEPLOYED.wal_position + 1), stored(CONFIRMED - 1), []],
    ids=["behind", "ahead", "passed", "none"],
)
def test_plan_with_recover_lists_the_offsets(
    serve: Serve, deployed: Deployed, lock: Lock, offsets: list[dict[str, object]]
) -> None:
    deployment = deployed()
    deployment.write_lock(lock)
    recovering = lock_for(deployment, recover=True)
    connect = deployed_connector(deployment.render(lock))
    connect.offsets = {NAME: offsets}
    server = serve(connect)
    changes = plan_connect(deployed(connect=service(server)), recovering, [], DEPLOYED, recover=True)
    assert [(change.object, change.action, change.after) for change in changes] == [
        ("offsets library-outbox", "update", ""),
        ("connector library-outbox", "update", f"{EPOCH_KEY}: 2 → 3"),
        ("start library-outbox", "create", ""),
    ]
    assert all(change.system == "connect" and change.reason for change in changes)
    assert {request.method for request in server.seen} == {"GET"}


def test_plan_with_recover_of_a_missing_connector(serve: Serve, deployed: Deployed, lock: Lock) -> None:
    server = serve(FakeConnect(PLUGINS))
    changes = plan_connect(deployed(connect=service(server)), lock, [], DEPLOYED, recover=True)
    assert [(change.object, change.action) for change in changes] == [("connector library-outbox", "create")]


@pytest.mark.parametrize(
    ("update", "ignored"),
    [
        ({"config": {"a": "1"}}, False),
        ({"config": None}, True),
        ({"config": {"a": "1"}, "unfinished": "recover"}, True),
    ],
)
def test_starts_a_connector_at_the_current_lsn_of_the_slot(
    deployed: Deployed, lock: Lock, update: dict[str, object], ignored: bool
) -> None:
    database = replace(DEPLOYED, slot=replace(SLOT, confirmed_flush=77))
    start = start_position(deployed(), lock.model_copy(update=update), database)
    assert start == StartPosition("library", 77, DEPLOYED.wal_position, ignored)


def test_does_not_start_a_connector_without_a_slot(deployed: Deployed, lock: Lock) -> None:
    with pytest.raises(ValueError, match="the slot does not exist"):
        start_position(deployed(), lock, replace(DEPLOYED, slot=None))


@pytest.mark.parametrize(
    ("change", "dangerous"),
    [
        (Change("postgres", "slot", "x", "create", "why"), True),
        (Change("postgres", "publication", "x", "create", "why"), True),
        (Change("postgres", "table", "x", "create", "why"), False),
    ],
)
def test_reports_recreating_a_slot_or_publication_as_dangerous(
    library: Pipeline, lock: Lock, change: Change, dangerous: bool
) -> None:
    recovering = lock.model_copy(update={"source": None, "unfinished": "recover"})
    (actual,) = add_dangers([change], library, recovering)
    assert bool(actual.danger) is dangerous
