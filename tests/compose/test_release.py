"""Release artifacts of `make dist`: the wheels in a new environment, the plugin zip in a worker without transforms."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name
from tests.compose.compose_stack import REPOSITORY
from tests.integration.support import CommandResult, run

from outbox_kit import __version__
from outbox_kit.testing import Images, OutboxStack

DEVELOPMENT = REPOSITORY / "requirements" / "development.txt"
PLUGINS = "/opt/kafka/plugins"
PIP_INSTALL = ["-m", "pip", "install", "-q", "--disable-pip-version-check"]
ENVIRONMENT = """\
name: prod
source:
  host: 127.0.0.1
  port: {port}
  database: library
  admin: {{user: outbox_admin, password: "{{{{ env.ADMIN }}}}"}}
  connector: {{host: postgres, port: 5432, user: outbox_connector, password: "${{env:OUTBOX_CONNECTOR_PASSWORD}}"}}
kafka: {{bootstrap_servers: "{kafka}", replication_factor: 1, min_insync_replicas: 1}}
registry: {{url: "{registry}"}}
connect: {{url: "{connect}"}}
"""


@pytest.fixture(scope="module")
def dist() -> Path:
    done = run([sys.executable, "scripts/dist.py"], REPOSITORY)
    assert done.code == 0, done.output
    return REPOSITORY / "dist"


@pytest.fixture(scope="module")
def outbox(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the command `outbox` of an environment with only the wheels and their requirements installed."""
    folder = tmp_path_factory.mktemp("wheel") / "venv"
    wheels = [str(path) for path in sorted(dist.glob("*.whl"))]
    python = str(folder / "bin" / "python")
    requirements = str(next(dist.glob("outbox-kit-requirements-*.txt")))
    pip = [python, *PIP_INSTALL]
    for command in (
        [sys.executable, "-m", "venv", str(folder)],
        [*pip, "--require-hashes", "-r", requirements],
        [*pip, "--no-deps", *wheels],
        [*pip, "--no-index", *wheels],  # fails if a package is missing
        [python, "-m", "pip", "check"],
    ):
        run_or_fail(command)
    return folder / "bin" / "outbox"


def run_or_fail(command: list[str]) -> str:
    """Run the command in the repository, and return its output. A failure of the command fails the test."""
    done = run(command, REPOSITORY)
    assert done.code == 0, done.output
    return done.stdout


def installed(python: list[str]) -> set[str]:
    """Return the names of the packages in an environment."""
    output = run_or_fail([*python, "-m", "pip", "list", "--format=json", "--disable-pip-version-check"])
    return {canonicalize_name(package["name"]) for package in json.loads(output)}


def versions_of(requirements: Path, folder: Path) -> str:
    """Write the versions without the hashes, which pip would also require of our wheels. Return the path."""
    pins = re.findall(r"^[a-z].*==[^\\\n]*", requirements.read_text(encoding="utf-8"), re.MULTILINE)
    file = folder / "versions.txt"
    file.write_text("\n".join(pins), encoding="utf-8")
    return str(file)


def test_a_service_installs_the_library_without_the_kit(dist: Path, tmp_path: Path) -> None:
    wheel, requirements = next(dist.glob("outbox_events-*.whl")), next(dist.glob("outbox-events-requirements-*.txt"))
    python = [str(tmp_path / "venv" / "bin" / "python"), "-I"]  # without the sources of PYTHONPATH
    run_or_fail([sys.executable, "-m", "venv", str(tmp_path / "venv")])
    run_or_fail([*python, *PIP_INSTALL, "-c", versions_of(requirements, tmp_path), str(wheel)])
    run_or_fail([*python, "-c", "from outbox_events import emit"])
    assert installed(python) <= {"outbox-events", "psycopg", "psycopg-binary", "typing-extensions", "pip", "setuptools"}
    missing = run([*python, "-c", "from outbox_events import Receiver"], REPOSITORY)
    assert missing.code == 1
    assert "outbox-events[kafka]" in missing.output

    run_or_fail([*python, *PIP_INSTALL, "--require-hashes", "-r", str(requirements)])
    run_or_fail([*python, *PIP_INSTALL, "--no-index", f"{wheel}[kafka,avro]"])
    others = "import outbox_events as o; [getattr(o, name) for name in o.__all__ if name != 'OpenTelemetryTracer']"
    run_or_fail([*python, "-c", others])
    assert installed(python) & {"outbox-kit", "typer", "pydantic", "jinja2", "rich", "msgspec", "pyspark"} == set()


def test_the_stack_starts_in_an_empty_folder_without_a_checkout(
    dist: Path, outbox: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = str(outbox.parent / "python")
    wheel = next(dist.glob("outbox_kit-*.whl"))
    run_or_fail(
        [python, *PIP_INSTALL, "-c", versions_of(DEVELOPMENT, tmp_path), "--find-links", str(dist), f"{wheel}[stack]"]
    )
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    folder = tmp_path / "empty"
    folder.mkdir()
    up = run([str(outbox), "stack", "up"], folder)
    down = run([str(outbox), "stack", "down", "--purge"], folder)
    assert (up.code, down.code) == (0, 0), up.output + down.output
    assert f"downloading kafka to {tmp_path}/cache" in up.output
    assert "make " not in up.output


def test_checksums_match_the_files(dist: Path) -> None:
    done = run(["sha256sum", "--check", "--strict", "SHA256SUMS"], dist)
    assert done.code == 0, done.output
    assert {line.partition(":")[0] for line in done.stdout.splitlines()} == {
        path.name for path in dist.iterdir() if path.name != "SHA256SUMS"
    }


@pytest.mark.parametrize("name", ["outbox-smt", "outbox-avro-converter"])
def test_sbom_of_a_plugin_lists_every_jar_of_its_zip(dist: Path, name: str) -> None:
    with zipfile.ZipFile(dist / f"{name}-{__version__}.zip") as archive:
        jars = {hashlib.sha256(archive.read(path)).hexdigest() for path in archive.namelist()}
    components = json.loads((dist / f"{name}-{__version__}.cdx.json").read_text(encoding="utf-8"))["components"]
    assert {entry["content"] for component in components for entry in component["hashes"]} == jars


def test_wheel_and_plugin_zip_deploy_a_pipeline(dist: Path, outbox: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(dist / f"outbox-smt-{__version__}.zip") as archive:
        archive.extractall(tmp_path / "plugins")
    empty = tmp_path / "empty"
    empty.mkdir()
    project = tmp_path / "books"
    for name in ("connectors", "schemas"):
        shutil.copytree(REPOSITORY / "docs" / "examples" / "book_management" / name, project / name)
    # The mounts hide the transforms of the image, so the worker loads the transforms of the zip.
    mounts = {
        tmp_path / "plugins" / "outbox-smt": f"{PLUGINS}/outbox-smt",
        empty: f"{PLUGINS}/outbox-avro-converter",
    }
    with OutboxStack(Images(connect_plugins=mounts)) as stack:
        environments = project / "connectors" / "environments"
        environments.mkdir(exist_ok=True)
        (environments / "prod.yaml").write_text(
            ENVIRONMENT.format(
                port=stack.postgres.port,
                kafka=stack.bootstrap_servers,
                registry=stack.registry_url,
                connect=stack.connect_url,
            )
        )

        def command(name: str, *options: str) -> CommandResult:
            prefix = ["env", f"ADMIN={stack.postgres.admin_password}", str(outbox)]
            return run([*prefix, "-p", "connectors/books.yaml", "-e", "prod", name, *options], project)

        for name, options in (("apply", ["--yes"]), ("verify", []), ("plan", [])):
            done = command(name, *options)
            assert done.code == 0, done.output
