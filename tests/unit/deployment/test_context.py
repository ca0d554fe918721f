"""Lock file, rendering, and clients of a deployment."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest
from tests.unit.deployment.samples import (
    Deployed,
)

from outbox_kit.deployment import Deployment, open_deployment
from outbox_kit.pipeline import UNKNOWN, Kafka, Lock


def connected_to(listening: socket.socket) -> bool:
    """Return whether a client connects within the socket's timeout."""
    try:
        listening.accept()[0].close()
    except TimeoutError:
        return False
    return True


def test_lock_file_is_named_by_pipeline_and_environment(deployed: Deployed, tmp_path: Path, lock: Lock) -> None:
    deployment = deployed()
    assert deployment.lock_file == tmp_path / "library.fixed.lock.json"
    assert deployment.lock() is None
    deployment.write_lock(lock)
    assert deployment.lock() == lock


def test_a_new_lock(deployed: Deployed) -> None:
    assert deployed().new_lock() == Lock(pipeline="library", environment="fixed")


def test_dead_letters_of_the_connector_or_of_a_consumer(deployed: Deployed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Deployment, "kafka", None)
    own, mail = "library.dead-letter", "mail.dead-letter"
    topics = [deployed().dead_letters(name) for name in (None, own, mail)]
    assert [(topic.name, topic.of_connector) for topic in topics] == [(own, True), (own, True), (mail, False)]


def test_render_uses_the_lock_file(deployed: Deployed, lock: Lock) -> None:
    key = "transforms.outbox.aggregate.author.schema.1.id"
    assert deployed().render(None)[key] == UNKNOWN
    assert deployed().render(lock)[key] == "3"


def test_reading_files_and_rendering_opens_no_connection(
    workspace: Path, lock: Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`render` does not use the network. A Kafka client connects in the background as soon as it is created."""
    for name in ("ADMIN", "KAFKA", "REGISTRY"):
        monkeypatch.setenv(f"OUTBOX_{name}_PASSWORD", "x")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.5)
        folder = workspace / "connectors" / "environments"
        example = (folder / "production.example.yaml").read_text(encoding="utf-8")
        address = f"bootstrap_servers: 127.0.0.1:{listening.getsockname()[1]}"
        edited = re.sub(r"bootstrap_servers: .*", address, example)
        (folder / "production.yaml").write_text(edited, encoding="utf-8")
        with open_deployment(workspace / "connectors" / "library.yaml", "production") as deployment:
            deployment.render(lock)
            assert not connected_to(listening)


def test_repr_contains_no_secret(deployed: Deployed) -> None:
    kafka = Kafka(bootstrap_servers="127.0.0.1:1", client={"sasl.password": "s3cret"})
    text = repr(deployed(kafka=kafka))
    assert "owner-secret" not in text
    assert "s3cret" not in text


def test_does_not_require_passwords_of_targets(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ADMIN", "KAFKA", "REGISTRY"):
        monkeypatch.setenv(f"OUTBOX_{name}_PASSWORD", "x")
    monkeypatch.delenv("OUTBOX_WAREHOUSE_PASSWORD", raising=False)
    with open_deployment(workspace / "connectors" / "library.yaml", "production.example") as deployment:
        assert deployment.lock_file == workspace / "connectors" / "library.production.lock.json"
