"""The files for spark-submit are complete and sufficient."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

import outbox_common
import outbox_events
import outbox_spark
from outbox_spark.commands.exit_codes import Exit
from outbox_spark.spark_submit_files import ZIP_NAME, build, main

PROJECT = Path(__file__).resolve().parents[2]
SOURCES = Path(outbox_spark.__file__).parent


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    created = tmp_path_factory.mktemp("dist")
    build(created)
    return created


def names(folder: Path) -> set[str]:
    with zipfile.ZipFile(folder / ZIP_NAME) as archive:
        return set(archive.namelist())


def test_zip_contains_jobs_and_shared_modules(folder: Path) -> None:
    actual = names(folder)
    assert {f"outbox_spark/{path.relative_to(SOURCES)}" for path in SOURCES.rglob("*.py")} <= actual
    shared = [Path(module.__file__ or "").parent for module in (outbox_common, outbox_events)]
    expected = {
        f"{package.name}/{path.relative_to(package).as_posix()}"
        for package in shared
        for path in [*package.rglob("*.py"), *package.rglob("manifest.txt"), package / "py.typed"]
    }
    assert {name for name in actual if not name.startswith("outbox_spark/")} == expected


def test_folder_contains_launchers(folder: Path) -> None:
    launchers = {path.name for path in (PROJECT / "spark_jobs").glob("*.py")}
    assert "materialize.py" in launchers
    assert {path.name for path in folder.iterdir()} == {ZIP_NAME, "requirements.txt", *launchers}


def imported(folder: Path) -> set[str]:
    """Return the names of the packages whose modules a folder imports."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in folder.rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    packages = metadata.packages_distributions()
    return {name.lower() for module in modules for name in packages.get(module.partition(".")[0], [])}


def test_requirements_contain_every_imported_package_with_hashes(folder: Path) -> None:
    text = (folder / "requirements.txt").read_text(encoding="utf-8")
    pinned = set(re.findall(r"^([a-z0-9-]+)==\S+(?: ;.*)? \\\n +--hash=sha256:", text, re.MULTILINE))
    needed = imported(SOURCES) | imported(Path(outbox_common.__file__).parent)
    # spark-submit provides the first two packages. Only a job without a job file needs the third, and only a session
    # without spark-submit, which downloads its jars, the last.
    assert needed - pinned <= {"pyspark", "py4j", "outbox-kit", "jgo"}
    assert needed & pinned


def test_zip_is_reproducible(folder: Path, tmp_path: Path) -> None:
    build(tmp_path)
    assert (tmp_path / ZIP_NAME).read_bytes() == (folder / ZIP_NAME).read_bytes()


def test_copies_jars_and_removes_old_ones(tmp_path: Path) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "from/new.jar").touch()
    (tmp_path / "to/jars").mkdir(parents=True)
    (tmp_path / "to/jars/old.jar").touch()
    assert main([str(tmp_path / "to"), "--jars", str(tmp_path / "from")]) == Exit.DONE
    assert [path.name for path in (tmp_path / "to/jars").iterdir()] == ["new.jar"]


def test_reports_a_folder_without_jars(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path), "--jars", str(tmp_path)]) == Exit.REFUSED
    assert f"error: no jars in {tmp_path}" in capsys.readouterr().err


def test_launcher_runs_from_the_zip(folder: Path, tmp_path: Path) -> None:
    """As with spark-submit, the zip is on the path, and there is no checkout."""
    program = "import outbox_spark.commands.materialize as j, outbox_common as k; print(j.__file__); print(k.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(folder / ZIP_NAME)}
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert all(line.startswith(str(folder / ZIP_NAME)) for line in result.stdout.split())
    command = [sys.executable, str(folder / "materialize.py"), "--help"]
    help_result = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert help_result.stdout.startswith("usage: outbox-materialize")
