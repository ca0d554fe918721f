"""`outbox render`: formats, required variables and overrides."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from outbox_events.errors import ConfigurationError
from outbox_kit.cli.app import app

EXAMPLE = ("-e", "production.example")


@pytest.fixture(autouse=True)
def isolated_workspace(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in the workspace, without OUTBOX variables."""
    monkeypatch.chdir(workspace)
    for name in [name for name in os.environ if name.upper().startswith("OUTBOX_")]:
        monkeypatch.delenv(name)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), catch_exceptions=True)


def test_connect_is_the_default() -> None:
    default, explicit = run(*EXAMPLE, "render"), run(*EXAMPLE, "render", "--format", "connect")
    assert default.stdout == explicit.stdout
    assert json.loads(default.stdout)["name"] == "library-outbox"


def test_prints_only_sql() -> None:
    result = run(*EXAMPLE, "render", "--format", "sql")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("-- Database objects and roles of pipeline library in environment production.\n")
    result = run(*EXAMPLE, "render", "--format", "sql", "--target", "warehouse")
    assert 'create role "outbox_materializer";' in result.stdout
    assert run(*EXAMPLE, "render", "--target", "warehouse").exit_code == 2


@pytest.mark.parametrize("output_format", ["strimzi", "yaml", ""])
def test_rejects_other_formats_with_exit_code_2(output_format: str) -> None:
    assert run(*EXAMPLE, "render", "--format", output_format).exit_code == 2


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("user: outbox_materializer", 'user: "{{ env.UNSET }}"'),
        ("database: warehouse", 'database: "{{ env.UNSET }}"'),
        ("user: outbox_admin", 'user: "{{ env.UNSET }}"'),
    ],
)
def test_sql_requires_the_variables_it_prints(workspace: Path, old: str, new: str) -> None:
    """If a variable is unset, no role may be missing or get an empty name."""
    folder = workspace / "connectors" / "environments"
    text = (folder / "production.example.yaml").read_text(encoding="utf-8")
    assert old in text
    (folder / "production.yaml").write_text(text.replace(old, new), encoding="utf-8")
    result = run("-e", "production", "render", "--format", "sql")
    assert isinstance(result.exception, ConfigurationError)
    assert "environment variable UNSET is not set" in result.exception.message
    assert result.stdout == ""


@pytest.mark.parametrize("output_format", ["connect", "sql"])
def test_set_and_variables_override_files(output_format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    slot = re.compile(r'"slot.name": "(\w+)"|replication_slot\(\'(\w+)\'')

    def rendered(*options: str) -> str:
        match = slot.search(run(*EXAMPLE, *options, "render", "--format", output_format).stdout)
        assert match
        return match[1] or match[2]

    assert rendered() == "library_outbox"
    assert rendered("--set", "source.slot=set", "--set", "prefix=x") == "set"
    monkeypatch.setenv("OUTBOX__SOURCE__SLOT", "variable")
    assert rendered("--set", "source.slot=set") == "variable"


def test_error_names_the_set_option() -> None:
    result = run(*EXAMPLE, "--set", "source.slott=x", "render")
    assert isinstance(result.exception, ConfigurationError)
    assert result.exception.message == "--set source.slott: source.slott: unknown key; did you mean 'slot'?"
