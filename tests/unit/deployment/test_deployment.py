"""One pipeline in one environment: what belongs to it, and that reading the files opens no connection."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.support import Script, ScriptedServer

from outbox_kit.changes import Change
from outbox_kit.deployment import Deployment, open_deployment
from outbox_kit.deployment.plan import plan_connect, plan_registry
from outbox_kit.errors import RefusedError
from outbox_kit.pipeline import UNKNOWN, HttpService, Kafka, Lock

PLUGINS = [
    {"class": "io.debezium.connector.postgresql.PostgresConnector"},
    {"class": "io.outboxkit.smt.OutboxRouter"},
]
NO_CONNECTOR: tuple[int, object] = (404, {"error_code": 404, "message": "Connector library-outbox not found"})
STATUS = {"connector": {"state": "RUNNING"}, "tasks": [{"state": "RUNNING"}]}
OFFSETS = {"offsets": [{"partition": {"server": "library"}, "offset": {"lsn": 9}}]}
Serve = Callable[[Script], ScriptedServer]
Deployed = Callable[..., Deployment]


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
    changes = plan_connect(deployed(connect=service(server)), lock, [])
    assert [(change.object, change.action) for change in changes] == [("connector library-outbox", "create")]


def test_plan_of_a_connector_that_is_as_rendered(serve: Serve, deployed: Deployed, lock: Lock) -> None:
    config = deployed().render(lock)
    server = serve([(200, {**config, "name": "library-outbox"}), (200, STATUS), (200, OFFSETS)])
    assert plan_connect(deployed(connect=service(server)), lock, []) == []


def test_plan_says_that_a_new_schema_changes_the_connector(serve: Serve, deployed: Deployed, lock: Lock) -> None:
    """Its id is not known yet, so the rendered config shows no difference."""
    config = deployed().render(lock)
    server = serve([(200, config), (200, STATUS), (200, OFFSETS)])
    before = [Change("registry", "schema library.book-value", "update", "payload of book")]
    changes = plan_connect(deployed(connect=service(server)), lock, before)
    assert [(change.object, change.action, change.after) for change in changes] == [
        ("connector library-outbox", "update", "schema versions and ids (known after apply)")
    ]


def test_plan_refuses_what_the_worker_cannot_load(serve: Serve, deployed: Deployed, lock: Lock) -> None:
    server = serve([NO_CONNECTOR, (200, PLUGINS[:1])])
    with pytest.raises(RefusedError, match=r"lacks plugin io\.outboxkit\.smt\.OutboxRouter"):
        plan_connect(deployed(connect=service(server)), lock, [])


def test_plan_of_an_empty_registry(serve: Serve, deployed: Deployed) -> None:
    server = serve([(404, {"error_code": 40401, "message": "not found"})])
    changes = plan_registry(deployed(registry=service(server)))
    assert [change.object for change in changes] == [
        f"{kind} library.{name}-value"
        for name in ("author", "book", "outbox-canary")
        for kind in ("compatibility", "schema")
    ]
    assert {request.method for request in server.seen} == {"GET"}
