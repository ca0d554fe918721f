"""Scripts of the images and of compose/, without a container engine."""

from __future__ import annotations

import ast
import base64
import os
import re
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from dotenv import dotenv_values

SECONDS = 30


def run_script(command: list[str], folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), **environ},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def properties(repository: Path, **environ: str) -> str:
    script = f". {repository}/compose/images/properties.bash; properties KAFKA_ KAFKA_HEAP_OPTS"
    done = run_script(["bash", "-euc", script], repository, **environ)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("KAFKA_NODE_ID", "1", "node.id=1"),
        ("KAFKA_LISTENER_NAME_SASL__SSL_X", "y", "listener.name.sasl_ssl.x=y"),
        ("KAFKA_A___B", "1", "a-b=1"),
        ("KAFKA_PATTERN", r"a\d", r"pattern=a\\d"),
        ("KAFKA_LINES", "a\nb", r"lines=a\nb"),
        ("KAFKA_BLANK", " a", r"blank=\ a"),
        ("KAFKA_EQUALS", "a=b", "equals=a=b"),
        ("KAFKA_EMPTY", "", "empty="),
        ("KAFKA_BASE64", "c2VjcmV0cw=", "base64=c2VjcmV0cw="),
    ],
)
def test_converts_a_variable_to_a_property(repository: Path, name: str, value: str, line: str) -> None:
    assert properties(repository, **{name: value}) == line + "\n"


def test_ignores_variables_of_other_programs(repository: Path) -> None:
    assert properties(repository, KAFKA_HEAP_OPTS="-Xmx1g", CONNECT_GROUP_ID="x", KAFKA_A="1") == "a=1\n"


def copy_env_script(repository: Path, root: Path) -> Path:
    """Create a project with compose-env.sh and .env.example; return the script."""
    for folder in ("scripts", "compose"):
        (root / folder).mkdir(parents=True)
    for name in ("compose/.env.example", "scripts/compose-env.sh"):
        (root / name).write_text((repository / name).read_text())
    return root / "scripts" / "compose-env.sh"


def test_profiles_change_only_their_lines(repository: Path, tmp_path: Path) -> None:
    script = copy_env_script(repository, tmp_path / "project")
    written = tmp_path / "project" / "compose" / ".env"
    actual = []
    for profiles in ([], ["three-brokers"], ["secure", "observability"], [], ["none"]):
        done = run_script(["sh", str(script), *profiles], tmp_path)
        assert done.returncode == 0, done.stderr
        actual.append(dotenv_values(written))
    changing = ("COMPOSE_FILE", "KAFKA_REPLICATION", "KAFKA_MIN_INSYNC", "EXPORTER_SSLMODE")
    assert [[item[name] for name in changing] for item in actual] == [
        ["compose.yaml", "1", "1", "disable"],
        ["compose.yaml:three-brokers.yaml", "3", "2", "disable"],
        ["compose.yaml:secure.yaml:observability.yaml", "1", "1", "require"],
        ["compose.yaml:secure.yaml:observability.yaml", "1", "1", "require"],
        ["compose.yaml", "1", "1", "disable"],
    ]
    assert len({str({name: item[name] for name in item if name not in changing}) for item in actual}) == 1
    assert stat.S_IMODE(written.stat().st_mode) == 0o600


COMBINATION_ERROR = "error: the profiles secure and three-brokers cannot be combined"


@pytest.mark.parametrize(
    ("profiles", "error"),
    [
        (["safe"], "error: unknown profile safe\n"),
        (
            ["secure", "observability", "three-brokers"],
            COMBINATION_ERROR,
        ),
        (["three-brokers", "secure"], COMBINATION_ERROR),
    ],
)
def test_rejects_an_invalid_profile(repository: Path, tmp_path: Path, profiles: list[str], error: str) -> None:
    done = run_script(["sh", str(copy_env_script(repository, tmp_path / "project")), *profiles], tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(error)
    assert not (tmp_path / "project" / "compose" / ".env").exists()


@pytest.mark.parametrize(
    ("port", "error"),
    [
        ("15432", "error: compose/.env: port 15432 is used twice: POSTGRES_PORT REGISTRY_PORT\n"),
        ("abc", "error: compose/.env: REGISTRY_PORT=abc is not a port\n"),
    ],
)
def test_reports_invalid_ports_before_building(repository: Path, tmp_path: Path, port: str, error: str) -> None:
    root = tmp_path / "project"
    script = copy_env_script(repository, root)
    example = root / "compose" / ".env.example"
    example.write_text(example.read_text().replace("REGISTRY_PORT=18080", f"REGISTRY_PORT={port}"))
    done = run_script(["sh", str(script)], tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines(keepends=True)[1] == error


def test_writes_new_passwords_readable_by_the_owner_only(repository: Path, tmp_path: Path) -> None:
    example = repository / "compose" / ".env.example"
    observed = set()
    for name in ("one", "two"):
        root = tmp_path / name
        done = run_script(["sh", str(copy_env_script(repository, root))], tmp_path)
        assert done.returncode == 0, done.stderr
        written = root / "compose" / ".env"
        assert stat.S_IMODE(written.stat().st_mode) == 0o600
        actual, defaults = dotenv_values(written), dotenv_values(example)
        passwords = {name for name in actual if name.endswith("_PASSWORD")}
        cluster = actual.pop("KAFKA_CLUSTER_ID") or ""
        assert not defaults.pop("KAFKA_CLUSTER_ID")
        assert len(base64.urlsafe_b64decode(cluster + "==")) == 16
        observed.add(cluster)
        assert {name: actual[name] for name in actual if name not in passwords} == {
            name: defaults[name] for name in defaults if name not in passwords
        }
        assert all(len(actual[name] or "") == 36 for name in passwords)
        observed |= {actual[name] for name in passwords}
    assert len(observed) == 2 * (len(passwords) + 1)


def test_reports_a_missing_engine_with_installation_hint(repository: Path, tmp_path: Path) -> None:
    script = str(repository / "scripts" / "container-engine.sh")
    done = run_script(["sh", script, "status"], tmp_path, DOCKER_HOST=f"unix://{tmp_path}/nothing.sock")
    assert done.returncode == 1
    assert done.stderr == ("error: no container engine responds (docker info)\nhint:  scripts/container-engine.sh up\n")


def test_an_unknown_command_prints_the_usage(repository: Path, tmp_path: Path) -> None:
    done = run_script(["sh", str(repository / "scripts" / "container-engine.sh"), "start"], tmp_path)
    assert done.returncode == 2
    assert "scripts/container-engine.sh up" in done.stderr


def test_tools_image_has_every_package_that_its_scripts_import(repository: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    install = re.search(
        r"^install \$images/tools (.*)$", (repository / "scripts/image-python.sh").read_text(), re.MULTILINE
    )
    assert install is not None
    packages = {re.split(r"[\[>=]", name)[0].replace("-", "_") for name in project["dependencies"]}
    packages |= {"outbox_kit", "outbox_common", *install[1].split()[1:]}
    imported = set[str]()
    for script in (repository / "compose").rglob("*.py"):
        for node in ast.walk(ast.parse(script.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.split(".")[0])
    assert imported - packages - sys.stdlib_module_names == set()
