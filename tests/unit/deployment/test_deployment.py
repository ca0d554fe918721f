"""One pipeline in one environment: what belongs to it, and that reading the files opens no connection."""

from __future__ import annotations

import re
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.connect.samples import NOBODY, listing
from tests.unit.deployment.samples import (
    AHEAD,
    CONFIRMED,
    NO_CONNECTOR,
    NO_OFFSET,
    OFFSETS,
    PASSED,
    PLUGINS,
    STATUS,
    STOPPED,
    Deployed,
    Given,
    Serve,
    service,
)
from tests.unit.postgres.samples import DEPLOYED

from outbox_kit.changes import Change
from outbox_kit.connect.state import EPOCH_KEY, seed_offset
from outbox_kit.deployment import open_deployment
from outbox_kit.deployment.execution import seed_for
from outbox_kit.deployment.plan import lock_for, plan_connect
from outbox_kit.errors import RefusedError
from outbox_kit.pipeline import UNKNOWN, Kafka, Lock


def connected_to(listening: socket.socket) -> bool:
    """Whether somebody connects within the socket's timeout."""
    try:
        listening.accept()[0].close()
    except TimeoutError:
        return False
    return True


def test_the_lock_file_goes_by_pipeline_and_environment(deployed: Deployed, tmp_path: Path, lock: Lock) -> None:
    deployment = deployed()
    assert deployment.lock_file == tmp_path / "library.fixed.lock.json"
    assert deployment.lock() is None
    deployment.write_lock(lock)
    assert deployment.lock() == lock


def test_a_new_lock(deployed: Deployed) -> None:
    assert deployed().new_lock() == Lock(pipeline="library", environment="fixed")


def test_render_follows_the_lock(deployed: Deployed, lock: Lock) -> None:
    key = "transforms.outbox.aggregate.author.schema.1.id"
    assert deployed().render(None)[key] == UNKNOWN
    assert deployed().render(lock)[key] == "3"


def test_reading_files_and_rendering_opens_no_connection(
    workspace: Path, lock: Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`render` promises: no network. The Kafka client connects in the background as soon as it is made."""
    for name in ("ADMIN", "KAFKA", "REGISTRY"):
        monkeypatch.setenv(f"OUTBOX_{name}_PASSWORD", "x")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.5)
        folder = workspace / "connectors" / "environments"
        example = (folder / "production.example.yaml").read_text(encoding="utf-8")
        address = f"bootstrap_servers: 127.0.0.1:{listening.getsockname()[1]}"
        here = re.sub(r"bootstrap_servers: .*", address, example)
        (folder / "here.yaml").write_text(here, encoding="utf-8")
        with open_deployment(workspace / "connectors" / "library.yaml", "here") as deployment:
            deployment.render(lock)
            assert not connected_to(listening)


def test_no_secret_in_the_text_form(deployed: Deployed) -> None:
    kafka = Kafka(bootstrap_servers="127.0.0.1:1", client={"sasl.password": "s3cret"})
    text = repr(deployed(kafka=kafka))
    assert "owner-secret" not in text
    assert "s3cret" not in text


def test_a_deployment_needs_no_password_of_the_targets(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ADMIN", "KAFKA", "REGISTRY"):
        monkeypatch.setenv(f"OUTBOX_{name}_PASSWORD", "x")
    monkeypatch.delenv("OUTBOX_WAREHOUSE_PASSWORD", raising=False)
    with open_deployment(workspace / "connectors" / "library.yaml", "production.example") as deployment:
        assert deployment.lock_file == workspace / "connectors" / "library.production.lock.json"


# --- plan


def test_plan_of_a_new_connector(serve: Serve, deployed: Deployed, lock: Lock) -> None:
    server = serve([NOBODY, NO_CONNECTOR, (200, PLUGINS)])
    changes = plan_connect(deployed(connect=service(server)), lock, [], DEPLOYED)
    assert [(change.object, change.action) for change in changes] == [("connector library-outbox", "create")]


def test_plan_of_a_connector_that_is_as_rendered(serve: Serve, deployed: Deployed, lock: Lock) -> None:
    config = deployed().render(lock)
    server = serve([listing({**config, "name": "library-outbox"}, STATUS), (200, OFFSETS)])
    assert plan_connect(deployed(connect=service(server)), lock, [], DEPLOYED) == []


def test_plan_says_that_a_new_schema_changes_the_connector(serve: Serve, deployed: Deployed, lock: Lock) -> None:
    """Its id is not known yet, so the rendered config shows no difference."""
    config = deployed().render(lock)
    server = serve([listing(config, STATUS), (200, OFFSETS)])
    before = [Change("registry", "schema library.book-value", "update", "payload of book")]
    changes = plan_connect(deployed(connect=service(server)), lock, before, DEPLOYED)
    assert [(change.object, change.action, change.after) for change in changes] == [
        ("connector library-outbox", "update", "schema versions and ids (known after apply)")
    ]


@pytest.mark.parametrize("missing", [entry["class"] for entry in PLUGINS])
def test_plan_refuses_what_the_worker_cannot_load(serve: Serve, deployed: Deployed, lock: Lock, missing: str) -> None:
    server = serve([NOBODY, NO_CONNECTOR, (200, [entry for entry in PLUGINS if entry["class"] != missing])])
    with pytest.raises(RefusedError, match=rf"lacks plugin {re.escape(missing)}$"):
        plan_connect(deployed(connect=service(server)), lock, [], DEPLOYED)


@pytest.mark.parametrize("state", [STATUS, STOPPED], ids=["running", "stopped"])
def test_plan_refuses_a_connector_ahead_of_the_server(
    serve: Serve, deployed: Deployed, lock: Lock, given: Given, state: object
) -> None:
    """Also after a second look at the server: on a busy outbox both have moved in between."""
    given(DEPLOYED)
    server = serve([listing(deployed().render(lock), state), (200, AHEAD)])
    with pytest.raises(RefusedError, match=f"the server only at {DEPLOYED.wal_position}"):
        plan_connect(deployed(connect=service(server)), lock, [], DEPLOYED)


FAILED = {"connector": {"state": "RUNNING"}, "tasks": [{"state": "FAILED"}]}


@pytest.mark.parametrize(
    ("state", "edit", "new_schema"),
    [(STOPPED, {}, False), (FAILED, {"poll.interval.ms": "7"}, False), (FAILED, {}, True)],
    ids=["to be started", "to be restarted", "restarted for a schema"],
)
def test_plan_refuses_to_start_a_connector_that_its_slot_has_passed(
    serve: Serve, deployed: Deployed, lock: Lock, state: object, edit: dict[str, str], new_schema: bool
) -> None:
    """Advanced by hand, or read by somebody else: PostgreSQL would serve from the slot's position, without a word."""
    server = serve([listing({**deployed().render(lock), **edit}, state), (200, PASSED)])
    before = [Change("registry", "schema library.book-value", "update", "payload of book")] if new_schema else []
    with pytest.raises(
        RefusedError, match=r"slot 'library_outbox' stands at 16/B374D848 .*, beyond connector"
    ) as found:
        plan_connect(deployed(connect=service(server)), lock, before, DEPLOYED)
    assert "outbox apply --recover" in found.value.hint
    assert {request.method for request in server.seen} == {"GET"}


@pytest.mark.parametrize("state", [STATUS, STOPPED], ids=["nothing to do", "left stopped"])
def test_a_connector_that_is_not_started_may_lag(serve: Serve, deployed: Deployed, lock: Lock, state: object) -> None:
    """What is left alone, apply does not judge: that is verify's and status's word."""
    deployment = deployed()
    halted = deployment.environment.connector.model_copy(update={"state": "stopped" if state is STOPPED else "running"})
    environment = deployment.environment.model_copy(update={"connector": halted})
    server = serve([listing(deployment.render(lock), state), (200, PASSED)])
    found = replace(deployed(connect=service(server)), environment=environment)
    assert plan_connect(found, lock, [], DEPLOYED) == []


def test_a_pair_that_moves_is_no_slot_that_passed(serve: Serve, deployed: Deployed, lock: Lock, given: Given) -> None:
    """On a busy outbox the server is looked at again: the slot of that look is younger than the position."""
    assert DEPLOYED.slot is not None
    early = replace(DEPLOYED, wal_position=CONFIRMED - 1)
    given(replace(DEPLOYED, slot={**DEPLOYED.slot, "confirmed_flush_lsn": "17/0"}))
    live = {**deployed().render(lock), "poll.interval.ms": "7"}
    server = serve([listing(live, STATUS), (200, OFFSETS), (200, PLUGINS)])
    changes = plan_connect(deployed(connect=service(server)), lock, [], early)
    assert [change.object for change in changes] == ["connector library-outbox"]


def test_plan_refuses_a_lock_file_that_is_behind(serve: Serve, deployed: Deployed, lock: Lock) -> None:
    live = deployed().render(lock.model_copy(update={"source_epoch": 3}))
    assert live[EPOCH_KEY] == "3"
    server = serve([listing(live, STATUS), (200, OFFSETS)])
    with pytest.raises(RefusedError, match="writes source epoch 3, the lock file is behind it"):
        plan_connect(deployed(connect=service(server)), lock, [], DEPLOYED)


def test_plan_refuses_a_connector_without_a_lock_file(serve: Serve, deployed: Deployed, lock: Lock) -> None:
    first = deployed().render(lock.model_copy(update={"source_epoch": 1}))
    server = serve([listing(first, STATUS), (200, OFFSETS)])
    with pytest.raises(RefusedError, match="the lock file does not know its slot"):
        plan_connect(deployed(connect=service(server)), None, [], DEPLOYED)


# --- recover


def test_lock_for_is_the_lock_file(deployed: Deployed, lock: Lock) -> None:
    deployment = deployed()
    assert lock_for(deployment, recover=False) is None
    deployment.write_lock(lock)
    assert lock_for(deployment, recover=False) == lock


def test_lock_for_recovery_raises_the_epoch_and_forgets_the_source(deployed: Deployed, lock: Lock) -> None:
    deployment = deployed()
    deployment.write_lock(lock)
    found = lock_for(deployment, recover=True)
    assert found == lock.model_copy(update={"source": None, "source_epoch": 3, "unfinished": "recover"})
    assert found.schemas == lock.schemas
    assert deployment.lock() == lock, "only apply writes it"


@pytest.mark.parametrize(("written", "epoch"), [(0, 2), (1, 2), (7, 8)])
def test_lock_for_recovery_without_a_lock_file(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch, written: int, epoch: int
) -> None:
    """What was written before, only the records tell."""
    monkeypatch.setattr("outbox_kit.deployment.plan.highest_epoch", lambda _: written)
    expected = Lock(pipeline="library", environment="fixed", source_epoch=epoch, unfinished="recover")
    assert lock_for(deployed(), recover=True) == expected


@pytest.mark.parametrize("offsets", [OFFSETS, AHEAD, PASSED, NO_OFFSET], ids=["behind", "ahead", "passed", "none"])
def test_plan_with_recover_lists_the_offsets(
    serve: Serve, deployed: Deployed, lock: Lock, offsets: dict[str, object]
) -> None:
    deployment = deployed()
    deployment.write_lock(lock)
    recovering = lock_for(deployment, recover=True)
    server = serve([listing(deployment.render(lock), STATUS), (200, offsets), (200, PLUGINS)])
    changes = plan_connect(deployed(connect=service(server)), recovering, [], DEPLOYED, recover=True)
    assert [(change.object, change.action, change.after) for change in changes] == [
        ("offsets library-outbox", "update", ""),
        ("connector library-outbox", "update", f"{EPOCH_KEY}: 2 → 3"),
        ("start library-outbox", "create", ""),
    ]
    assert all(change.system == "connect" and change.why for change in changes)
    assert {request.method for request in server.seen} == {"GET"}


def test_plan_with_recover_of_a_connector_that_is_not_there(serve: Serve, deployed: Deployed, lock: Lock) -> None:
    server = serve([NOBODY, NO_CONNECTOR, (200, PLUGINS)])
    changes = plan_connect(deployed(connect=service(server)), lock, [], DEPLOYED, recover=True)
    assert [(change.object, change.action) for change in changes] == [("connector library-outbox", "create")]


@pytest.mark.parametrize("position", ["16/B374D848", "16/C0000000"])
def test_the_seed_is_where_the_slot_is_now(position: str) -> None:
    assert DEPLOYED.slot is not None
    database = replace(DEPLOYED, slot={**DEPLOYED.slot, "confirmed_flush_lsn": position})
    assert seed_for(database) == seed_offset(position)


def test_no_seed_without_a_slot() -> None:
    with pytest.raises(ValueError, match="the database comes before the connector"):
        seed_for(replace(DEPLOYED, slot=None))
