"""compose.yaml and the embedded stack tell their servers the same."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from dotenv import dotenv_values

from outbox_kit.stack.connect import common_settings
from outbox_kit.stack.databases import Logins
from outbox_kit.stack.kafka import single_node_settings
from outbox_kit.stack.postgres import REPLICATION
from outbox_kit.stack.registry import storage
from outbox_kit.testing.container import variables


@pytest.fixture(scope="module")
def services(repository: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((repository / "compose" / "compose.yaml").read_text())["services"]
    return found


def texts(values: dict[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in values.items()}


@pytest.mark.parametrize("worker", ["connect-1", "connect-2"])
def test_the_workers(services: dict[str, Any], worker: str) -> None:
    environment = texts(services[worker]["environment"])
    expected = variables("CONNECT_", common_settings())
    assert {name: environment.get(name) for name in expected} == expected
    assert environment["CONNECT_REST_ADVERTISED_HOST_NAME"] == worker


def test_the_broker(services: dict[str, Any]) -> None:
    environment = texts(services["kafka"]["environment"])
    expected = variables("KAFKA_", single_node_settings())
    assert {name: environment.get(name) for name in expected} == expected


def test_postgres(services: dict[str, Any]) -> None:
    assert {f"-c{name}={value}" for name, value in REPLICATION.items()} <= set(services["postgres"]["command"])


def test_the_registry(services: dict[str, Any]) -> None:
    environment = texts(services["registry"]["environment"])
    logins = Logins(connector_password="c", materializer_password="m", registry_password="${REGISTRY_PASSWORD:?}")
    expected = storage("postgres:5432", logins)
    assert {name: environment.get(name) for name in expected} == expected


def test_every_service_is_bounded_and_rotates_its_log(services: dict[str, Any]) -> None:
    for name, service in services.items():
        assert service["deploy"]["resources"]["limits"]["memory"], name
        assert service["logging"]["options"] == {"max-size": "10m", "max-file": "3"}, name
        assert "container_name" not in service, name
        assert all(str(port).startswith("127.0.0.1:") for port in service.get("ports", ())), name


def test_every_variable_is_documented(repository: Path) -> None:
    text = (repository / "compose" / "compose.yaml").read_text()
    used = set(re.findall(r"(?<!\$)\$\{(\w+)", text))
    example = repository / "compose" / ".env.example"
    assert used <= set(dotenv_values(example))
    assert set(dotenv_values(example)) - used == {"COMPOSE_PROJECT_NAME"}
