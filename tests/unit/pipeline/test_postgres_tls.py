"""TLS of the PostgreSQL connections of outbox-kit, the Connect worker and the Spark jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from outbox_events.errors import ConfigurationError
from outbox_kit.pipeline import Environment, Overrides, load_environment, load_pipeline, render_connector
from outbox_kit.pipeline.environment import PostgresTarget

SECRETS = {name: "x" for name in ("OUTBOX_ADMIN_PASSWORD", "OUTBOX_KAFKA_PASSWORD")} | {
    name: "x" for name in ("OUTBOX_REGISTRY_PASSWORD", "OUTBOX_WAREHOUSE_PASSWORD")
}


def production(workspace: Path, *options: str) -> Environment:
    pipeline = workspace / "connectors" / "library.yaml"
    overrides = Overrides(tuple(f"environment.{option}" for option in options), environ=SECRETS)
    return load_environment("production.example", pipeline, overrides)


def test_resolves_a_ca_relative_to_the_project_folder(workspace: Path) -> None:
    (workspace / "ca.pem").write_text("")
    actual = production(
        workspace,
        "source.sslmode=verify-full",
        "source.sslrootcert=ca.pem",
        "targets.warehouse.sslmode=verify-ca",
        "targets.warehouse.sslrootcert=/etc/ssl/authority.pem",
    )
    assert (actual.source.sslmode, actual.source.sslrootcert) == ("verify-full", workspace / "ca.pem")
    warehouse = actual.targets["warehouse"]
    assert isinstance(warehouse, PostgresTarget)
    assert (warehouse.sslmode, warehouse.sslrootcert) == ("verify-ca", Path("/etc/ssl/authority.pem"))


def test_reports_a_missing_ca_before_connecting(workspace: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"(?m)source\.sslrootcert: no file .*/ca\.pem$"):
        production(workspace, "source.sslmode=verify-full", "source.sslrootcert=ca.pem")


@pytest.mark.parametrize("section", ["source", "source.connector", "targets.warehouse"])
@pytest.mark.parametrize("mode", ["null", "require", "prefer"])
def test_rejects_a_ca_that_is_not_used(workspace: Path, section: str, mode: str) -> None:
    options = [f"{section}.sslrootcert=/ca.pem", f"{section}.sslmode={mode}"]
    with pytest.raises(ConfigurationError, match=r"sslrootcert requires sslmode verify-ca"):
        production(workspace, *options)


def test_worker_uses_the_tls_mode_of_the_tool(workspace: Path) -> None:
    pipeline = load_pipeline(workspace / "connectors" / "library.yaml")
    actual = production(workspace, "source.sslmode=require")
    rendered = render_connector(pipeline, actual, None, workspace / "connectors" / "templates")
    assert rendered["database.sslmode"] == "require"


def test_reports_an_unknown_mode_with_the_known_ones(workspace: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"source\.sslmode"):
        production(workspace, "source.sslmode=strict")


def test_worker_tls_settings_are_separate_and_default_to_none(workspace: Path) -> None:
    pipeline = load_pipeline(workspace / "connectors" / "library.yaml")
    templates = workspace / "connectors" / "templates"
    plain = render_connector(pipeline, production(workspace, "source.sslmode=null"), None, templates)
    assert not [key for key in plain if key.startswith("database.ssl")]
    actual = production(
        workspace, "source.connector.sslmode=verify-full", "source.connector.sslrootcert=/run/secrets/ca.pem"
    )
    rendered = render_connector(pipeline, actual, None, templates)
    assert rendered["database.sslmode"] == "verify-full"
    assert rendered["database.sslrootcert"] == "/run/secrets/ca.pem"
