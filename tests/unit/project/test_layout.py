"""Repository: sizes of functions and files, imports, versions, launchers."""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
import sys
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from outbox_kit import __version__

ROOT = Path(__file__).resolve().parents[3]
SOURCES = sorted([*(ROOT / "scripts").rglob("*.py"), *(ROOT / "spark_jobs").rglob("*.py")])
FUNCTION_LINES, FUNCTION_LINES_P90, FILE_LINES = 60, 30, 600
FOLDER_MODULES = 15
DOCUMENT_LINE = 120


def functions(path: Path) -> list[tuple[str, int]]:
    """Return name and number of lines of every function, including signature and docstring."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [
        (
            f"{path.relative_to(ROOT)}:{node.lineno} {node.name}",
            (node.end_lineno or node.lineno) - node.lineno + 1,
        )
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def imported(path: Path) -> set[str]:
    """Return the top-level names of the modules that a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add((node.module or "").partition(".")[0])
    return names


# --- sizes


def test_no_function_is_long() -> None:
    long = [f"{name}: {lines} lines" for path in SOURCES for name, lines in functions(path) if lines > FUNCTION_LINES]
    assert long == []


def test_most_functions_are_short() -> None:
    lengths = [lines for path in SOURCES for _, lines in functions(path)]
    assert statistics.quantiles(lengths, n=10)[-1] <= FUNCTION_LINES_P90


def test_no_file_is_long() -> None:
    sizes = {path.relative_to(ROOT): len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES}
    assert {path: lines for path, lines in sizes.items() if lines > FILE_LINES} == {}


@pytest.mark.parametrize(
    "pattern",
    ["scripts/**/*.py", "spark_jobs/**/*.py", "spark_jobs/**/*.java", "smt/src/main/**/*.java", "tests/**/*.py"],
)
def test_no_folder_has_many_modules(pattern: str) -> None:
    folders = Counter(
        path.parent.relative_to(ROOT)
        for path in ROOT.glob(pattern)
        if path.name not in {"__init__.py", "package-info.java", "conftest.py"}
    )
    assert {folder: count for folder, count in folders.items() if count > FOLDER_MODULES} == {}


def test_lines_of_documents_are_short() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    assert [
        f"{page.relative_to(ROOT)}:{number}"
        for page in pages
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > DOCUMENT_LINE
    ] == []


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


@pytest.mark.parametrize("folder", ["scripts", "spark_jobs", "tests"])
def test_source_roots_are_no_import_names(folder: str) -> None:
    """`import scripts.outbox_kit` would load a second copy of every module."""
    actual = {
        str(path.relative_to(ROOT)): names
        for path in sorted((ROOT / folder).rglob("*.py"))
        if (names := imported(path) & {"scripts", "spark_jobs"})
    }
    assert actual == {}


def test_launchers_do_not_shadow_the_standard_library() -> None:
    """The folder of a launcher is first on sys.path, so a `types.py` in it would prevent Spark from starting."""
    names = {path.stem for folder in ("scripts", "spark_jobs") for path in (ROOT / folder).glob("*.py")}
    assert names & sys.stdlib_module_names == set()


@pytest.mark.parametrize("package", ["scripts/outbox_common", "scripts/outbox_kit", "spark_jobs/outbox_spark"])
def test_packages_are_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()


@pytest.mark.parametrize("system", ["postgres", "kafka", "registry", "connect"])
def test_each_system_has_the_same_file_names(system: str) -> None:
    names = {path.name for path in (ROOT / "scripts" / "outbox_kit" / system).glob("*.py")}
    assert names >= {"client.py", "state.py", "apply.py", "checks.py"}


def test_only_the_command_line_prints() -> None:
    """Data and messages go through cli/console.py."""
    printing = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in (ROOT / "scripts" / "outbox_kit").rglob("*.py")
        if path.parent.name != "cli"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert printing == []


# --- versions


def test_changelog_starts_with_this_version() -> None:
    path = ROOT / "CHANGELOG.md"
    assert path.is_file(), f"CHANGELOG.md is missing; it must begin with a heading for version {__version__}"
    headings = re.findall(r"^## \[?v?(\d+\.\d+\.\d+[^\s\]]*)", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert headings, "CHANGELOG.md has no heading `## <version>`"
    assert headings[0] == __version__


# --- launchers


@pytest.mark.parametrize(("launcher", "usage"), [("register.py", "outbox apply"), ("verify.py", "outbox verify")])
def test_launchers_accept_the_options_of_their_command(launcher: str, usage: str, tmp_path: Path) -> None:
    path = ROOT / "scripts" / launcher
    assert path.stat().st_mode & 0o111, "is executable"
    result = subprocess.run([sys.executable, path, "--help"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert f"Usage: {usage}" in result.stdout
