"""compose.yaml and the embedded stack configure their servers with the same settings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from dotenv import dotenv_values

from outbox_kit.stack.services.connect import common_settings
from outbox_kit.stack.services.databases import Logins
from outbox_kit.stack.services.jvm import environment_variables
from outbox_kit.stack.services.kafka import single_node_settings
from outbox_kit.stack.services.postgres import SERVER_SETTINGS
from outbox_kit.stack.services.registry import storage_variables


@pytest.fixture(scope="module")
def services(repository: Path) -> dict[str, Any]:
    actual: dict[str, Any] = yaml.safe_load((repository / "compose" / "compose.yaml").read_text())["services"]
    return actual


@pytest.fixture(scope="module")
def example(repository: Path) -> dict[str, str]:
    """Variables of compose/.env.example."""
    return {name: value or "" for name, value in dotenv_values(repository / "compose" / ".env.example").items()}


def substituted(values: dict[str, Any], example: dict[str, str]) -> dict[str, str]:
    """Return settings with substituted variables. Passwords, which the example does not set, remain variables."""

    def value_of(match: re.Match[str]) -> str:
        return example[match[1]] or match[0]

    return {name: re.sub(r"(?<!\$)\$\{(\w+)[^}]*\}", value_of, str(value)) for name, value in values.items()}


@pytest.mark.parametrize("worker", ["connect-1", "connect-2"])
def test_worker_settings_match(services: dict[str, Any], example: dict[str, str], worker: str) -> None:
    environment = substituted(services[worker]["environment"], example)
    expected = environment_variables("CONNECT_", common_settings())
    assert {name: environment.get(name) for name in expected} == expected
    assert environment["CONNECT_REST_ADVERTISED_HOST_NAME"] == worker


def test_second_worker_starts_after_the_first_is_healthy(services: dict[str, Any]) -> None:
    """The leader of the group must respond to the zombie fencing request of the other worker."""
    dependencies = services["connect-2"]["depends_on"]
    assert dependencies == {**services["connect-1"]["depends_on"], "connect-1": {"condition": "service_healthy"}}


def test_broker_settings_match(services: dict[str, Any], example: dict[str, str]) -> None:
    environment = substituted(services["kafka"]["environment"], example)
    expected = environment_variables("KAFKA_", single_node_settings())
    assert {name: environment.get(name) for name in expected} == expected


def test_postgres_settings_match(services: dict[str, Any]) -> None:
    assert {f"-c{name}={value}" for name, value in SERVER_SETTINGS.items()} <= set(services["postgres"]["command"])


def test_document_states_the_settings_of_postgres(repository: Path) -> None:
    """Regression: docs/stack.md stated 20 replication slots instead of 60."""
    page = (repository / "docs" / "stack.md").read_text()
    assert [f"{name}={value}" for name, value in SERVER_SETTINGS.items() if f"`{name}={value}`" not in page] == []


def test_registry_settings_match(services: dict[str, Any], example: dict[str, str]) -> None:
    environment = substituted(services["registry"]["environment"], example)
    logins = Logins(connector_password="c", materializer_password="m", registry_password="${REGISTRY_PASSWORD:?}")
    expected = storage_variables("postgres:5432", logins)
    assert {name: environment.get(name) for name in expected} == expected


def test_services_have_limits_and_log_rotation(services: dict[str, Any]) -> None:
    for name, service in services.items():
        assert service["deploy"]["resources"]["limits"]["memory"], name
        assert service["logging"]["options"] == {"max-size": "10m", "max-file": "3"}, name
        assert "container_name" not in service, name
        assert all(str(port).startswith("127.0.0.1:") for port in service.get("ports", ())), name


def test_documents_every_variable(repository: Path, example: dict[str, str]) -> None:
    files = (repository / "compose").glob("*.yaml")
    used = {name for file in files for name in re.findall(r"(?<!\$)\$\{(\w+)", file.read_text())}
    assert used <= set(example)
    # The first two are variables of Compose itself. The environment files use KAFKA_USER.
    assert set(example) - used == {"COMPOSE_PROJECT_NAME", "COMPOSE_FILE", "KAFKA_USER"}


@pytest.mark.parametrize("profile", ["secure", "three-brokers", "observability"])
def test_services_of_profiles_have_limits(repository: Path, services: dict[str, Any], profile: str) -> None:
    text = (repository / "compose" / f"{profile}.yaml").read_text().replace("!override", "")
    added = {name: item for name, item in yaml.safe_load(text)["services"].items() if name not in services}
    for name, service in added.items():
        merged = {**services["kafka"], **service} if "extends" in service else service
        assert merged["deploy"]["resources"]["limits"]["memory"], name
        assert merged["logging"]["options"] == {"max-size": "10m", "max-file": "3"}, name
        assert all(str(port).startswith("127.0.0.1:") for port in service.get("ports", ())), name
