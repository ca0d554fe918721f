"""Release artifacts of `make dist`: the wheels in a new environment, the plugin zip in a worker without transforms."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name
from tests.compose.wheel_environment import PIP_INSTALL, REPOSITORY, run_or_fail, versions_of
from tests.integration.support import CommandResult, run

from outbox_kit import __version__
from outbox_kit.testing import Images, OutboxStack

PLUGINS = "/opt/kafka/plugins"
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


def installed(python: list[str]) -> set[str]:
    """Return the names of the packages in an environment."""
    output = run_or_fail([*python, "-m", "pip", "list", "--format=json", "--disable-pip-version-check"])
    return {canonicalize_name(package["name"]) for package in json.loads(output)}


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


def test_sbom_of_the_spark_jars_lists_every_other_jar(dist: Path) -> None:
    with zipfile.ZipFile(dist / f"outbox-spark-jars-{__version__}.zip") as archive:
        jars = {Path(name).name: hashlib.sha256(archive.read(name)).hexdigest() for name in archive.namelist()}
    components = json.loads((dist / f"outbox-spark-jars-{__version__}.cdx.json").read_text(encoding="utf-8"))[
        "components"
    ]
    assert jars.pop("outbox-spark.jar")
    assert {entry["content"] for component in components for entry in component["hashes"]} == set(jars.values())


def test_sbom_of_the_wheel_lists_its_jars(dist: Path) -> None:
    with zipfile.ZipFile(next(dist.glob("outbox_kit-*.whl"))) as archive:
        names = [name for name in archive.namelist() if name.endswith(".jar") and "outbox-spark" not in name]
        jars = {hashlib.sha256(archive.read(name)).hexdigest() for name in names}
    text = (dist / f"outbox-kit-{__version__}.cdx.json").read_text(encoding="utf-8")
    listed = {entry["content"] for item in json.loads(text)["components"] for entry in item["hashes"]}
    assert jars
    assert jars <= listed


def test_wheel_and_plugin_zip_deploy_a_pipeline(dist: Path, wheel_commands: Path, tmp_path: Path) -> None:
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
            prefix = ["env", f"ADMIN={stack.postgres.admin_password}", str(wheel_commands / "outbox")]
            return run([*prefix, "-p", "connectors/books.yaml", "-e", "prod", name, *options], project)

        for name, options in (("apply", ["--yes"]), ("verify", []), ("plan", [])):
            done = command(name, *options)
            assert done.code == 0, done.output
