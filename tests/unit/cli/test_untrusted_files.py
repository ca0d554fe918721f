"""`lint` and `render` do not execute code in untrusted files, for example files of a pull request."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.cli.samples import SECRETS, RunMain

# Like the console script `outbox`, this runs without the working directory on the module search path.
OUTBOX = [sys.executable, "-P", "-c", "from outbox_kit.cli import main; main()"]
EXAMPLE = ("-e", "production.example")
TEMPLATE = '{"a": {{ cycler.__init__.__globals__.os.system("touch MARKER") | string | tojson }}}'
MODULES = ("yaml", "jinja2", "pydantic", "sitecustomize", "conftest", "outbox_kit")


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """Path of a file that any executed code would create."""
    return tmp_path / "executed"


@pytest.mark.parametrize("command", ["lint", "render"])
def test_a_module_of_the_working_directory_is_not_imported(workspace: Path, marker: Path, command: str) -> None:
    for folder in (workspace, workspace / "connectors"):
        for name in MODULES:
            (folder / f"{name}.py").write_text(f"open({str(marker)!r}, 'w')")
    variables = {name: value for name, value in os.environ.items() if not name.startswith("OUTBOX_")}
    done = subprocess.run(
        [*OUTBOX, *EXAMPLE, command],
        cwd=workspace,
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not marker.exists()


@pytest.mark.parametrize("command", ["lint", "render"])
def test_a_template_executes_no_code(run_main: RunMain, workspace: Path, marker: Path, command: str) -> None:
    template = workspace / "connectors" / "templates" / "hostile.json.j2"
    template.write_text(TEMPLATE.replace("MARKER", str(marker)))
    assert "is unsafe" in "".join(run_main(*EXAMPLE, command, "--set", "connector.template=hostile")[1:])
    assert not marker.exists()


def test_a_template_outside_of_the_folder_is_not_read(run_main: RunMain, workspace: Path, marker: Path) -> None:
    (workspace / "hostile.json.j2").write_text(TEMPLATE.replace("MARKER", str(marker)))
    for name in ("../../hostile", str(workspace / "hostile")):
        assert "no template" in run_main(*EXAMPLE, "render", "--set", f"connector.template={name}")[2]
    assert not marker.exists()


@pytest.mark.parametrize("file", ["library.yaml", "environments/production.example.yaml"])
def test_a_yaml_tag_executes_no_code(run_main: RunMain, workspace: Path, marker: Path, file: str) -> None:
    path = workspace / "connectors" / file
    path.write_text(f"x: !!python/object/apply:os.system ['touch {marker}']\n{path.read_text()}")
    assert "not valid YAML" in "".join(run_main(*EXAMPLE, "lint")[1:])
    assert not marker.exists()


@pytest.mark.parametrize("command", ["lint", "render"])
@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("connectors/library.yaml", '"x\\n::error::forged": 1'),
        ("connectors/environments/production.example.yaml", "name: \"{{ nope['\\n::error::forged'] }}\""),
        ("connectors/environments/production.example.yaml", 'name: "production\\n::error::forged"'),
        ("connectors/templates/outbox-postgres.json.j2", '{{ refuse("x\n::error::forged") }}'),
        ("connectors/templates/outbox-postgres.json.j2", '{% include "x\n::error::forged" %}'),
        ("schemas/book.avsc", '{"type": "record", "name": "x\\n::error::forged", "fields": []}'),
        ("schemas/book.avsc", '{"type": "record", "name": "A", "fields": [{"name": "f", "type": "x\\n::error::f"}]}'),
    ],
)
def test_a_file_cannot_write_commands_to_the_log_of_ci(
    run_main: RunMain, workspace: Path, command: str, file: str, content: str
) -> None:
    """GitHub's runner executes lines that begin with `::`, even after spaces."""
    (workspace / file).write_text(content)
    _, out, err = run_main(*EXAMPLE, command)
    lines = (out + err).splitlines()
    assert lines
    assert not [line for line in lines if line.lstrip().startswith("::")]


@pytest.mark.parametrize("command", ["lint", "plan", "render", "status", "verify"])
@pytest.mark.parametrize("name", ["plugin.library.paths", "sasl.kerberos.kinit.cmd", "ssl.engine.location"])
def test_no_command_passes_code_to_the_kafka_client(
    run_main: RunMain, workspace: Path, monkeypatch: pytest.MonkeyPatch, command: str, name: str
) -> None:
    for variable, value in SECRETS.items():
        monkeypatch.setenv(variable, value)
    path = workspace / "connectors" / "environments" / "production.example.yaml"
    path.write_text(path.read_text().replace("  client:\n", f"  client:\n    {name}: /tmp/x.so\n"))
    code, out, err = run_main(*EXAMPLE, command)
    text = " ".join((out + err).split())
    assert code != 0
    assert name in text
    assert "production.example.yaml" in text


@pytest.mark.parametrize("command", ["lint", "render"])
def test_no_command_passes_code_to_a_connector(run_main: RunMain, workspace: Path, command: str) -> None:
    template = workspace / "connectors" / "templates" / "hostile.json.j2"
    template.write_text('{"producer.override.interceptor.classes": "x.Y"}')
    code, out, err = run_main(*EXAMPLE, command, "--set", "connector.template=hostile")
    assert code != 0
    assert {"producer.override.interceptor.classes", "hostile.json.j2"} <= set(re.split(r"[\s:/]+", out + err))
