"""`lint` and `render` of files that a stranger wrote, for example in a pull request, execute none of their code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# As the console script `outbox` runs: without the working directory on the module search path.
OUTBOX = [sys.executable, "-P", "-c", "from outbox_kit.cli import main; main()"]
TEMPLATE = '{"a": {{ cycler.__init__.__globals__.os.system("touch MARKER") | string | tojson }}}'
MODULES = ("yaml", "jinja2", "pydantic", "sitecustomize", "conftest", "outbox_kit")


@pytest.fixture
def marker(workspace: Path) -> Path:
    """Path of a file that each executed code would create; the workspace contains such code in Python modules."""
    path = workspace / "executed"
    for folder in (workspace, workspace / "connectors"):
        for name in MODULES:
            (folder / f"{name}.py").write_text(f"open({str(path)!r}, 'w')")
    return path


def run(workspace: Path, *arguments: str) -> str:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("OUTBOX_")}
    command = [*OUTBOX, "-e", "production.example", *arguments]
    done = subprocess.run(
        command, cwd=workspace, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("command", ["lint", "render"])
def test_a_template_executes_no_code(workspace: Path, marker: Path, command: str) -> None:
    template = workspace / "connectors" / "templates" / "hostile.json.j2"
    template.write_text(TEMPLATE.replace("MARKER", str(marker)))
    assert "is unsafe" in run(workspace, command, "--set", "connector.template=hostile")
    assert not marker.exists()


def test_a_template_outside_of_the_folder_is_not_read(workspace: Path, marker: Path) -> None:
    (workspace / "hostile.json.j2").write_text(TEMPLATE.replace("MARKER", str(marker)))
    for name in ("../../hostile", str(workspace / "hostile")):
        assert "no template" in run(workspace, "render", "--set", f"connector.template={name}")
    assert not marker.exists()


@pytest.mark.parametrize("file", ["library.yaml", "environments/production.example.yaml"])
def test_a_yaml_tag_executes_no_code(workspace: Path, marker: Path, file: str) -> None:
    path = workspace / "connectors" / file
    path.write_text(f"x: !!python/object/apply:os.system ['touch {marker}']\n{path.read_text()}")
    assert "not valid YAML" in run(workspace, "lint")
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
def test_a_file_cannot_write_commands_to_the_log_of_ci(workspace: Path, command: str, file: str, content: str) -> None:
    """GitHub's runner executes lines that begin with `::`, also after spaces."""
    (workspace / file).write_text(content)
    lines = run(workspace, command).splitlines()
    assert lines
    assert not [line for line in lines if line.lstrip().startswith("::")]
