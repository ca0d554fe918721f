"""One pipeline in one environment: what belongs to it, and that reading the files opens no connection."""

from __future__ import annotations

import importlib
import re
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.postgres.samples import DEPLOYED, PUBLICATION, SLOT
from tests.unit.support import Request, Script, ScriptedServer

from outbox_kit.changes import Change
from outbox_kit.connect import apply as connect_apply
from outbox_kit.connect.state import EPOCH_KEY, seed_offset
from outbox_kit.deployment import Deployment, apply, make_plan, open_deployment
from outbox_kit.deployment.apply import seed_for
from outbox_kit.deployment.plan import lock_for, plan_connect, plan_registry
from outbox_kit.errors import RefusedError
from outbox_kit.pipeline import UNKNOWN, HttpService, Kafka, Lock
from outbox_kit.postgres.state import ActualDatabase

PLUGINS = [
    {"class": "io.debezium.connector.postgresql.PostgresConnector"},
    {"class": "io.debezium.converters.BinaryDataConverter"},
    {"class": "io.outboxkit.smt.OutboxRouter"},
    {"class": "org.apache.kafka.connect.storage.StringConverter"},
]
# The package exports a function of the same name as its module.
apply_module = importlib.import_module("outbox_kit.deployment.apply")
plan_module = importlib.import_module("outbox_kit.deployment.plan")
NO_CONNECTOR: tuple[int, object] = (404, {"error_code": 404, "message": "Connector library-outbox not found"})
STATUS = {"connector": {"state": "RUNNING"}, "tasks": [{"state": "RUNNING"}]}
STOPPED = {"connector": {"state": "STOPPED"}, "tasks": []}
OFFSETS = {"offsets": [{"partition": {"server": "library"}, "offset": {"lsn": 9}}]}
AHEAD = {"offsets": [{"partition": {"server": "library"}, "offset": {"lsn": DEPLOYED.wal_position + 1}}]}
NO_OFFSET: dict[str, object] = {"offsets": []}
Serve = Callable[[Script], ScriptedServer]
Deployed = Callable[..., Deployment]
Given = Callable[[ActualDatabase], None]


def connected_to(listening: socket.socket) -> bool:
    """Whether somebody connects within the socket's timeout."""
    try:
        listening.accept()[0].close()
    except TimeoutError:
        return False
    return True


def service(server: ScriptedServer) -> HttpService:
    return HttpService(url=server.url)


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
    server = serve([NO_CONNECTOR, (200, PLUGINS)])
    changes = plan_connect(deployed(connect=service(server)), lock, [], DEPLOYED)
    assert [(change.object, change.action) for change in changes] == [("connector library-outbox", "create")]


def test_plan_of_a_connector_that_is_as_rendered(serve: Serve, deployed: Deployed, lock: Lock) -> None:
    config = deployed().render(lock)
    server = serve([(200, {**config, "name": "library-outbox"}), (200, STATUS), (200, OFFSETS)])
    assert plan_connect(deployed(connect=service(server)), lock, [], DEPLOYED) == []


def test_plan_says_that_a_new_schema_changes_the_connector(serve: Serve, deployed: Deployed, lock: Lock) -> None:
    """Its id is not known yet, so the rendered config shows no difference."""
    config = deployed().render(lock)
    server = serve([(200, config), (200, STATUS), (200, OFFSETS)])
    before = [Change("registry", "schema library.book-value", "update", "payload of book")]
    changes = plan_connect(deployed(connect=service(server)), lock, before, DEPLOYED)
    assert [(change.object, change.action, change.after) for change in changes] == [
        ("connector library-outbox", "update", "schema versions and ids (known after apply)")
    ]


@pytest.mark.parametrize("missing", [entry["class"] for entry in PLUGINS])
def test_plan_refuses_what_the_worker_cannot_load(serve: Serve, deployed: Deployed, lock: Lock, missing: str) -> None:
    server = serve([NO_CONNECTOR, (200, [entry for entry in PLUGINS if entry["class"] != missing])])
    with pytest.raises(RefusedError, match=rf"lacks plugin {re.escape(missing)}$"):
        plan_connect(deployed(connect=service(server)), lock, [], DEPLOYED)


@pytest.mark.parametrize("state", [STATUS, STOPPED], ids=["running", "stopped"])
def test_plan_refuses_a_connector_ahead_of_the_server(
    serve: Serve, deployed: Deployed, lock: Lock, given: Given, state: object
) -> None:
    """Also after a second look at the server: on a busy outbox both have moved in between."""
    given(DEPLOYED)
    server = serve([(200, deployed().render(lock)), (200, state), (200, AHEAD)])
    with pytest.raises(RefusedError, match=f"the server only at {DEPLOYED.wal_position}"):
        plan_connect(deployed(connect=service(server)), lock, [], DEPLOYED)


def test_plan_refuses_a_lock_file_that_is_behind(serve: Serve, deployed: Deployed, lock: Lock) -> None:
    live = deployed().render(lock.model_copy(update={"source_epoch": 3}))
    assert live[EPOCH_KEY] == "3"
    server = serve([(200, live), (200, STATUS), (200, OFFSETS)])
    with pytest.raises(RefusedError, match="writes source epoch 3, the lock file is behind it"):
        plan_connect(deployed(connect=service(server)), lock, [], DEPLOYED)


def test_plan_refuses_a_connector_without_a_lock_file(serve: Serve, deployed: Deployed, lock: Lock) -> None:
    first = deployed().render(lock.model_copy(update={"source_epoch": 1}))
    server = serve([(200, first), (200, STATUS), (200, OFFSETS)])
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


def test_lock_for_recovery_without_a_lock_file(deployed: Deployed) -> None:
    """Whatever was written before was written under the first epoch or a later one."""
    expected = Lock(pipeline="library", environment="fixed", source_epoch=2, unfinished="recover")
    assert lock_for(deployed(), recover=True) == expected


@pytest.mark.parametrize("offsets", [OFFSETS, AHEAD, NO_OFFSET], ids=["behind", "ahead", "none"])
def test_plan_with_recover_lists_the_offsets(
    serve: Serve, deployed: Deployed, lock: Lock, offsets: dict[str, object]
) -> None:
    deployment = deployed()
    deployment.write_lock(lock)
    recovering = lock_for(deployment, recover=True)
    server = serve([(200, deployment.render(lock)), (200, STATUS), (200, offsets), (200, PLUGINS)])
    changes = plan_connect(deployed(connect=service(server)), recovering, [], DEPLOYED, recover=True)
    assert [(change.object, change.action, change.after) for change in changes] == [
        ("offsets library-outbox", "update", ""),
        ("connector library-outbox", "update", f"changed: {EPOCH_KEY}"),
        ("start library-outbox", "create", ""),
    ]
    assert all(change.system == "connect" and change.why for change in changes)
    assert {request.method for request in server.seen} == {"GET"}


def test_plan_with_recover_of_a_connector_that_is_not_there(serve: Serve, deployed: Deployed, lock: Lock) -> None:
    server = serve([NO_CONNECTOR, (200, PLUGINS)])
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


# --- plan and apply as a whole: the database's state is given, Kafka has nothing to do, the rest is HTTP


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Given:
    """What is read of the database; topics are as they should be."""
    monkeypatch.setattr(connect_apply, "LOOK_EVERY_S", 0.01)

    def database(actual: ActualDatabase) -> None:
        for module in (plan_module, apply_module):
            monkeypatch.setattr(module, "read_database", lambda _: actual)
        monkeypatch.setattr(plan_module, "plan_kafka", lambda _: [])

    return database


def registered(lock: Lock, ids: dict[str, list[int]] | None = None) -> Script:
    """A registry that has what `lock` has, under other ids where `ids` says so: answers to plan, then to the lock.

    The newest version is asked for once: Confluent's client keeps what cannot change.
    """
    script: list[tuple[int, object]] = []
    versions: list[tuple[int, object]] = []
    for name in ("author", "book", "outbox-canary"):
        entries = lock.schemas[name]
        bodies = [
            {
                "subject": entry.subject,
                "version": entry.version,
                "id": (ids or {}).get(name, [found.id for found in entries])[age],
                "schema": entry.text,
            }
            for age, entry in enumerate(entries)
        ]
        script += [(200, bodies[0]), (200, {"compatibilityLevel": "BACKWARD"})]
        versions += [(200, sorted(entry.version for entry in entries)), *((200, body) for body in bodies[1:])]
    return [*script, *versions]


def test_plan_goes_by_the_schemas_of_the_registry(serve: Serve, deployed: Deployed, lock: Lock, given: Given) -> None:
    """An apply that died after registering: the lock file has not heard of the id, the plan must show it."""
    given(DEPLOYED)
    deployed().write_lock(lock)
    registry = serve(registered(lock, {"book": [8]}))
    connect = serve([(200, deployed().render(lock)), (200, STATUS), (200, OFFSETS), (200, PLUGINS)])
    changes = make_plan(deployed(connect=service(connect), registry=service(registry)))
    assert [(change.object, change.after) for change in changes] == [
        ("connector library-outbox", "changed: transforms.outbox.aggregate.book.schema.1.id")
    ]
    assert deployed().lock() == lock, "a plan writes nothing"


def test_plan_of_what_is_deployed_is_empty(serve: Serve, deployed: Deployed, lock: Lock, given: Given) -> None:
    given(DEPLOYED)
    deployed().write_lock(lock)
    registry = serve(registered(lock))
    connect = serve([(200, deployed().render(lock)), (200, STATUS), (200, OFFSETS)])
    assert make_plan(deployed(connect=service(connect), registry=service(registry))) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"timeline": 2}, "was promoted or restored since"),
        ({"system_identifier": "7302"}, "the database is another one"),
        ({"slot": None}, "slot 'library_outbox' is gone"),
    ],
    ids=["promoted", "another database", "slot gone"],
)
def test_what_plan_refuses_it_accepts_with_recover(
    serve: Serve,
    deployed: Deployed,
    lock: Lock,
    given: Given,
    changes: dict[str, Any],
    message: str,
) -> None:
    given(replace(DEPLOYED, **changes))
    deployed().write_lock(lock)
    registry = serve(registered(lock))
    connect = serve([(200, deployed().render(lock)), (200, STATUS), (200, AHEAD), (200, PLUGINS)])
    deployment = deployed(connect=service(connect), registry=service(registry))
    with pytest.raises(RefusedError, match=message):
        make_plan(deployment)
    assert (connect.seen, registry.seen) == ([], []), "refused before anything else is asked"
    planned = [change.object for change in make_plan(deployment, recover=True)]
    slot = ["slot library_outbox"] if "slot" in changes else []
    assert planned == [*slot, *(f"{kind} library-outbox" for kind in ("offsets", "connector", "start"))]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"standby": True}, "the database is a standby"),
        ({"wal_level": "replica"}, "wal_level is 'replica'"),
        ({"publication": None}, "exists but publication"),
        ({"publication": {**PUBLICATION, "filtered": True}}, "has a row filter"),
        ({"slot": {**SLOT, "wal_status": "lost"}}, "is lost"),
    ],
)
def test_recover_does_not_accept_what_cannot_deliver(
    deployed: Deployed, lock: Lock, given: Given, changes: dict[str, Any], message: str
) -> None:
    given(replace(DEPLOYED, **changes))
    deployed().write_lock(lock)
    with pytest.raises(RefusedError, match=message):
        make_plan(deployed(), recover=True)


def test_recovery_of_the_connector_step_by_step(
    serve: Serve,
    deployed: Deployed,
    lock: Lock,
    given: Given,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Stopped before the slot is looked for, its position forgotten before it gets a new one, started last."""
    given(replace(DEPLOYED, timeline=2))
    deployed().write_lock(lock)
    after = lock.model_copy(update={"source_epoch": 3, "unfinished": "recover"})
    old, new = deployed().render(lock), deployed().render(after)
    answers: list[object] = [
        *(old, STATUS, AHEAD, PLUGINS),  # plan
        *(old, None, STATUS, STOPPED),  # stop
        *(old, STOPPED, AHEAD, PLUGINS, {"configs": []}),  # plan again, validate
        *(None, STOPPED, {}),  # forget
        *(STOPPED, {}),  # update
        *(STOPPED, NO_OFFSET, {}, None),  # start
        STATUS,
    ]
    connect = serve([(200, answer) for answer in answers])
    prepared: list[bool] = []

    def prepare(*_: object, recover: bool) -> Lock:
        prepared.append(recover)
        assert connect.seen[-1] == Request("GET", "/connectors/library-outbox/status"), "stopped"
        return after

    monkeypatch.setattr(apply_module, "prepare", prepare)
    deployment = deployed(connect=service(connect), registry=service(serve(registered(lock))))
    done = apply(deployment, lambda _: None, recover=True)
    path = "/connectors/library-outbox"
    seed = {"partition": {"server": "library"}, "offset": seed_offset("16/B374D848")}
    assert [request for request in connect.seen if request.method != "GET"] == [
        Request("PUT", f"{path}/stop"),
        Request(
            "PUT",
            f"/connector-plugins/{new['connector.class']}/config/validate",
            {"name": "library-outbox", **new},
        ),
        Request("PUT", f"{path}/stop"),
        Request("DELETE", f"{path}/offsets"),
        Request("PUT", f"{path}/config", new),
        Request("PATCH", f"{path}/offsets", {"offsets": [seed]}),
        Request("PUT", f"{path}/resume"),
    ]
    assert prepared == [True]
    assert [change.object.split()[0] for change in done] == ["offsets", "connector", "start"]


def test_plan_of_an_empty_registry(serve: Serve, deployed: Deployed) -> None:
    server = serve([(404, {"error_code": 40401, "message": "not found"})])
    changes = plan_registry(deployed(registry=service(server)))
    assert [change.object for change in changes] == [
        f"{kind} library.{name}-value"
        for name in ("author", "book", "outbox-canary")
        for kind in ("compatibility", "schema")
    ]
    assert {request.method for request in server.seen} == {"GET"}
