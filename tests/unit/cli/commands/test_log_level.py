"""`outbox log-level`, against a real HTTP server with scripted responses of Connect."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from tests.unit.cli.samples import SECRETS
from tests.unit.support import Request, Script, ScriptedServer
from typer.testing import CliRunner

from outbox_kit.cli.app import app
from outbox_kit.deployment import identity
from outbox_kit.pipeline import Lock, write_lock

LOGGERS = {
    "root": {"level": "INFO", "last_modified": None},
    "io.debezium": {"level": "DEBUG"},
    "io.debezium.connector": {"level": "TRACE"},
    "io.debeziumlike": {"level": "WARN"},
}
Serve = Callable[[Script], ScriptedServer]
Run = Callable[..., Result]


@pytest.fixture
def run(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command with a Connect worker at the given URL."""
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    folder = workspace / "connectors" / "environments"
    example = (folder / "production.example.yaml").read_text(encoding="utf-8")
    monkeypatch.setattr(identity, "refuse_foreign_systems", lambda *_, **__: None)
    lock = Lock(pipeline="library", environment="production")
    write_lock(workspace / "connectors" / "library.production.lock.json", lock)

    def command(url: str, *arguments: str) -> Result:
        environment = example.replace("https://connect.example.internal:8083", url)
        (folder / "production.yaml").write_text(environment, encoding="utf-8")
        pipeline = str(workspace / "connectors" / "library.yaml")
        return CliRunner().invoke(app, ["-p", pipeline, "-e", "production", *arguments])

    return command


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], {"io.debezium", "io.debezium.connector", "io.debeziumlike", "root"}),
        (["io.debezium"], {"io.debezium", "io.debezium.connector"}),
        (["root"], {"root"}),
        (["org.apache"], set()),
    ],
)
def test_shows_levels(serve: Serve, run: Run, arguments: list[str], expected: set[str]) -> None:
    server = serve([(200, LOGGERS)])
    result = run(server.url, "--output", "json", "log-level", *arguments)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {"loggers": {name: LOGGERS[name]["level"] for name in sorted(expected)}}
    # Before, the command compares the connector with the lock file.
    assert [(request.method, request.path) for request in server.seen][1:] == [("GET", "/admin/loggers")]


def test_shows_an_inherited_level(serve: Serve, run: Run) -> None:
    no_connector = 404, {"error_code": 404, "message": "Connector not found"}
    result = run(serve([no_connector, (200, LOGGERS)]).url, "log-level", "org.apache")
    assert (result.exit_code, result.stderr) == (
        0,
        "org.apache does not have its own level; it inherits the level of its parent logger\n",
    )


@pytest.mark.parametrize("level", ["debug", "DEBUG"])
def test_sets_a_level_on_every_worker(serve: Serve, run: Run, level: str) -> None:
    server = serve([(204, None)])
    result = run(server.url, "log-level", "io.debezium", level)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "io.debezium will log at DEBUG on every worker until the worker restarts\n"
    assert server.seen == [Request("PUT", "/admin/loggers/io.debezium?scope=cluster", {"level": "DEBUG"})]


def test_rejects_an_unknown_level_with_exit_code_2(serve: Serve, run: Run) -> None:
    """For an unknown level, Connect would return 404, as for an unknown logger."""
    server = serve([(204, None)])
    result = run(server.url, "log-level", "io.debezium", "LOUD")
    assert result.exit_code == 2
    assert "LOUD" in result.stderr
    assert server.seen == []
