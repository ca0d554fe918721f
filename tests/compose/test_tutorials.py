"""The tutorials, followed literally with the commands of the wheels, in an empty folder without a checkout.

Afterwards, the deployment is upgraded to the next version.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.compose.wheel_environment import PIP_INSTALL, REPOSITORY, add_extras, install_wheels, run_or_fail, run_script

from outbox_kit import __version__

pytestmark = pytest.mark.timeout(900)

NEXT_VERSION = "0.2.0.dev0"
TUTORIALS = REPOSITORY / "docs" / "tutorial"
PSQL = """\
#!{python}
import argparse, sys, psycopg
parser = argparse.ArgumentParser()
parser.add_argument("dsn")
parser.add_argument("--quiet", action="store_true")
parser.add_argument("--command")
options = parser.parse_args()
with psycopg.connect(options.dsn, autocommit=True) as connection:
    cursor = connection.execute(options.command or sys.stdin.read())
    for row in cursor.fetchall() if cursor.description else ():
        print(*row, sep=" | ")
"""


def blocks(name: str, language: str = "sh") -> list[str]:
    """Return the code blocks of a tutorial."""
    text = (TUTORIALS / name).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def commands(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of commands of an environment for the tutorials, which change it."""
    folder = install_wheels(tmp_path_factory.mktemp("tutorials") / "venv", dist)
    add_extras(folder, dist, tmp_path_factory.mktemp("extras"))
    if shutil.which("psql") is None:
        (folder / "psql").write_text(PSQL.format(python=folder / "python"), encoding="utf-8")
        (folder / "psql").chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def shop(commands: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """Follow the first tutorial, except for the installation, and for the last step, which stops the stack."""
    folder = tmp_path_factory.mktemp("tutorial")
    install, *steps, stop = blocks("existing-database.md")
    assert ("pip install" in install, "stack down" in stop) == (True, True)
    try:
        yield Shop(folder / "shop", run_script("\n".join(steps), folder, commands, cache))
    finally:
        run_script("test ! -d shop || (cd shop && outbox stack down --purge)", folder, commands, cache)


@dataclass(frozen=True)
class Shop:
    """Project of the first tutorial, and the output of its commands."""

    folder: Path
    output: str


def test_from_an_existing_database_to_verified_tables(shop: Shop, cache: Path) -> None:
    assert f"downloading kafka to {cache}" in shop.output
    (proposal,) = blocks("existing-database.md", "text")
    printed = [line.split() for line in shop.output.splitlines()]
    for line in proposal.splitlines():
        assert line.split() in printed
    assert ["300"] in printed
    orders = [line for line in shop.output.splitlines() if '"line_no"' in line or "'line_no'" in line]
    assert any('"quantity": 7' in line for line in orders)
    assert "make " not in shop.output


@pytest.mark.long
def test_write_and_receive_events_in_a_service(shop: Shop, commands: Path, cache: Path) -> None:
    output = run_script("\n".join(blocks("service.md")), shop.folder, commands, cache)
    assert ["9"] in [line.split() for line in output.splitlines()]


@pytest.mark.long
def test_add_a_column(shop: Shop, commands: Path, cache: Path) -> None:
    output = run_script("\n".join(blocks("../add-a-column.md")), shop.folder, commands, cache)
    assert "schemas/order.avsc" in output
    assert ["1"] in [line.split() for line in output.splitlines()]


@pytest.mark.long
def test_upgrades_to_the_next_version(shop: Shop, commands: Path, cache: Path, tmp_path: Path) -> None:
    """The files of the deployment and its tables are those that the release has written."""
    for wheel in next_version(tmp_path):
        run_or_fail([str(commands / "python"), *PIP_INSTALL, "--no-deps", str(wheel)])
    script = """
    outbox --version
    outbox plan
    outbox verify --states
    outbox-materialize
    outbox-reconcile
    outbox stack down
    outbox stack up
    until outbox status; do sleep 1; done
    outbox verify
    """
    assert NEXT_VERSION in run_script(script, shop.folder, commands, cache)


def built_files() -> list[Path]:
    jar = REPOSITORY / "build" / "runtime" / "spark" / "jars" / "outbox-spark.jar"
    return [jar, *(REPOSITORY / "smt" / "target" / "plugin").rglob("*.jar")]


def next_version(folder: Path) -> list[Path]:
    """Build the wheels of this checkout, with the files that `make setup` built, as the next version."""
    files = run_or_fail(["git", "ls-files"]).splitlines()
    files += [str(path.relative_to(REPOSITORY)) for path in built_files()]
    for name in files:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, target)
    for name in ("pyproject.toml", "scripts/outbox_kit/__init__.py", "scripts/outbox_events/__init__.py"):
        path = folder / name
        text = path.read_text(encoding="utf-8")
        assert __version__ in text
        path.write_text(text.replace(__version__, NEXT_VERSION), encoding="utf-8")
    for project in (folder / "scripts" / "outbox_events", folder):
        run_or_fail([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "wheels")], project)
    return sorted((folder / "wheels").glob("*.whl"))
