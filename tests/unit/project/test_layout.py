"""Repository: sizes of functions and folders, imports, versions, launchers."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from outbox_kit import __version__

ROOT = Path(__file__).resolve().parents[3]
SOURCES = sorted([*(ROOT / "scripts").rglob("*.py"), *(ROOT / "spark_jobs").rglob("*.py")])
FUNCTION_LINES = 60
FOLDER_MODULES = 20
LARGE_FOLDERS: dict[str, str] = {}
"""Folders with more than FOLDER_MODULES modules, each with its one idea."""


# --- sizes


def test_no_function_is_long() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or node.lineno) - node.lineno >= FUNCTION_LINES
    ]
    assert long == []


def test_a_folder_with_many_modules_has_one_idea() -> None:
    folders = Counter(
        str(path.parent.relative_to(ROOT))
        for root in ("scripts", "spark_jobs", "smt/src/main", "tests")
        for path in (ROOT / root).rglob("*")
        if path.suffix in {".py", ".java"} and path.stem not in {"__init__", "package-info", "conftest"}
    )
    assert {folder for folder, count in folders.items() if count > FOLDER_MODULES} == LARGE_FOLDERS.keys()


# --- imports


def module_of(path: Path) -> str:
    """Return the dotted name of a source file."""
    relative = path.relative_to(ROOT / "scripts" if "scripts" in path.parts else ROOT / "spark_jobs")
    return ".".join(relative.with_suffix("").parts).removesuffix(".__init__")


def imported_modules(path: Path, modules: set[str]) -> set[str]:
    """Return the modules of the project that a file imports at its top level."""
    imports = [node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.ImportFrom)]
    names = {f"{node.module}.{alias.name}" for node in imports for alias in node.names}
    return {name if name in modules else name.rpartition(".")[0] for name in names} & modules


def test_no_import_cycles() -> None:
    modules = {module_of(path): path for path in SOURCES}
    graph = {name: imported_modules(path, set(modules)) - {name} for name, path in modules.items()}
    TopologicalSorter(graph).prepare()  # raises CycleError


def test_source_roots_are_no_import_names() -> None:
    """`import scripts.outbox_kit` would load a second copy of every module."""
    paths = [*SOURCES, *(ROOT / "tests").rglob("*.py")]
    pattern = re.compile(r"^\s*(from|import) (scripts|spark_jobs)\b", re.MULTILINE)
    assert [path for path in paths if pattern.search(path.read_text(encoding="utf-8"))] == []


def test_launchers_do_not_shadow_the_standard_library() -> None:
    """The folder of a launcher is first on sys.path, so a `types.py` in it would prevent Spark from starting."""
    names = {path.stem for folder in ("scripts", "spark_jobs") for path in (ROOT / folder).glob("*.py")}
    assert names & sys.stdlib_module_names == set()


@pytest.mark.parametrize("package", ["scripts/outbox_common", "scripts/outbox_kit", "spark_jobs/outbox_spark"])
def test_packages_are_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()


# --- versions


def test_changelog_starts_with_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## \[?v?(\d+\.\d+\.\d+[^\s\]]*)", text, flags=re.MULTILINE)
    assert headings[:1] == [__version__]


# --- launchers


@pytest.mark.parametrize(("launcher", "usage"), [("register.py", "outbox apply"), ("verify.py", "outbox verify")])
def test_launchers_accept_the_options_of_their_command(launcher: str, usage: str, tmp_path: Path) -> None:
    path = ROOT / "scripts" / launcher
    assert path.stat().st_mode & 0o111, "is executable"
    result = subprocess.run([sys.executable, path, "--help"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert f"Usage: {usage}" in result.stdout
