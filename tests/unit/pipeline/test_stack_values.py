"""Values of the running embedded stack in an environment file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from outbox_events.errors import ConfigurationError
from outbox_kit.pipeline import Environment, Overrides, load_environment

STACK = {
    "postgres_host": "127.0.0.1",
    "postgres_port": 40001,
    "source_database": "library",
    "target_database": "warehouse",
    "admin_user": "outbox_admin",
    "admin_password": "stack-s3cret",
    "connector_user": "outbox_connector",
    "materializer_user": "outbox_materializer",
    "materializer_password": "stack-s3cret-2",
    "kafka": "127.0.0.1:40002",
    "registry": "http://127.0.0.1:40003/apis/ccompat/v7",
    "connect": "http://127.0.0.1:40004",
}


def write_state(workspace: Path, state: object) -> None:
    folder = workspace / "build" / "stack"
    folder.mkdir(parents=True)
    text = state if isinstance(state, str) else json.dumps(state)
    (folder / "state.json").write_text(text, encoding="utf-8")


def local(workspace: Path) -> Environment:
    return load_environment("local", workspace / "connectors" / "library.yaml", Overrides(environ={}))


def test_reports_that_the_stack_is_not_running(workspace: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"(?m)^the embedded stack is not running$") as caught:
        local(workspace)
    assert caught.value.hint == "run `outbox stack up`"


def test_reports_a_stopped_stack_as_not_running(workspace: Path) -> None:
    write_state(workspace, {"services": [], "environment": STACK})
    with pytest.raises(ConfigurationError, match=r"(?m)^the embedded stack is not running$"):
        local(workspace)


def test_returns_values_of_the_stack(workspace: Path) -> None:
    write_state(workspace, {"services": ["postgres", "kafka"], "environment": STACK})
    actual = local(workspace)
    assert actual.source.port == 40001
    assert actual.source.admin.password.get_secret_value() == "stack-s3cret"
    assert actual.source.connector.password == "${env:OUTBOX_CONNECTOR_PASSWORD}"
    assert actual.kafka.bootstrap_servers == "127.0.0.1:40002"
    assert actual.registry.url == "http://127.0.0.1:40003/apis/ccompat/v7"
    assert actual.lock_folder == workspace / "build" / "stack"
    assert "s3cret" not in repr(actual)


def test_rejects_an_unknown_value_of_the_stack(workspace: Path) -> None:
    write_state(workspace, {"services": ["postgres"], "environment": {"kafka": "x", "connect": "y"}})
    with pytest.raises(ConfigurationError, match="no value 'postgres_host'") as caught:
        local(workspace)
    assert caught.value.hint == "use one of the values connect, kafka"


@pytest.mark.parametrize("state", ["", "{", "[]", '{"services": ["postgres"]}'])
def test_reports_an_unusable_state_file(workspace: Path, state: str) -> None:
    write_state(workspace, state)
    with pytest.raises(ConfigurationError, match="stack"):
        local(workspace)
