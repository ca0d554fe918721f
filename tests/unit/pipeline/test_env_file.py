"""Variables of an environment file that are in a separate file (`env_file`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from outbox_events.errors import ConfigurationError
from outbox_kit.pipeline import Environment, Overrides, load_environment

VARIABLES = """\
# as compose/.env
POSTGRES_PORT=25432
KAFKA_PORT=29092
KAFKA_REPLICATION=1
KAFKA_MIN_INSYNC=1
REGISTRY_PORT=28080
CONNECT_1_PORT=28083
CONNECT_2_PORT=28084
ADMIN_PASSWORD="with # and $dollar"
MATERIALIZER_PASSWORD=m
"""


def compose(workspace: Path, **environ: str) -> Environment:
    return load_environment("compose", workspace / "connectors" / "library.yaml", Overrides(environ=environ))


def write(workspace: Path, text: str) -> Path:
    file = workspace / "compose" / ".env"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def test_reads_variables_verbatim(workspace: Path) -> None:
    write(workspace, VARIABLES)
    actual = compose(workspace)
    assert actual.source.port == 25432
    assert actual.source.admin.password.get_secret_value() == "with # and $dollar"
    assert actual.kafka.bootstrap_servers == "127.0.0.1:29092"
    assert actual.connect.workers == ["http://127.0.0.1:28083", "http://127.0.0.1:28084"]


def test_process_variables_take_precedence(workspace: Path) -> None:
    write(workspace, VARIABLES)
    assert compose(workspace, POSTGRES_PORT="1234").source.port == 1234


def test_error_for_an_undefined_variable_names_the_file(workspace: Path) -> None:
    file = write(workspace, VARIABLES.replace("ADMIN_PASSWORD", "ADMIN_PASSWORT"))
    with pytest.raises(ConfigurationError, match=r"(?m)ADMIN_PASSWORD is not set$") as caught:
        compose(workspace)
    assert caught.value.hint == f"export ADMIN_PASSWORD=... and run again; or set them in {file}"


def test_reports_a_missing_env_file(workspace: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        compose(workspace)
    assert "`make up`" in caught.value.hint
    compose_file = workspace / "connectors" / "environments" / "compose.yaml"
    compose_file.write_text(compose_file.read_text().replace("compose/.env", "own.env"))
    with pytest.raises(ConfigurationError) as caught:
        compose(workspace)
    assert caught.value.hint.endswith(f"or set them in {workspace / 'own.env'}, which does not exist")


def test_rejects_a_binary_env_file(workspace: Path) -> None:
    write(workspace, "").write_bytes(b"A=\xff\xfe")
    with pytest.raises(ConfigurationError, match=r"(?m)^cannot read .*\.env: UnicodeDecodeError$"):
        compose(workspace)
