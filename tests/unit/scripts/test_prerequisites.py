"""scripts/prerequisites.sh: missing programs, and the command that installs them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "prerequisites.sh"
BASICS = ["sh", "dirname", "readlink", "grep", "sed", "id", "tr"]


@pytest.fixture
def basic_path(tmp_path: Path) -> Path:
    """Return a folder for PATH that contains only basic tools, without a package manager."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in BASICS:
        actual = shutil.which(name)
        assert actual, name
        (folder / name).symlink_to(actual)
    return folder


def run(path: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(path / "sh"), str(SCRIPT), *arguments],
        env={"PATH": str(path), **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def write_tool(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!{folder / 'sh'}\n{script}\n", encoding="utf-8")
    (folder / name).chmod(0o755)


def jdk(folder: Path, version: str = "17.0.2") -> str:
    """Create a JDK whose javac prints only the version, and return its home."""
    home = folder / "jdk"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "javac").write_text(f"#!{folder / 'bin' / 'sh'}\necho 'javac {version}'\n", encoding="utf-8")
    (home / "bin" / "javac").chmod(0o755)
    return str(home)


def has_jdk(path: Path) -> bool:
    """Return whether the script finds a JDK in its standard folders, for any PATH."""
    return run(path, "java-home").returncode == 0


def test_reports_everything_without_any_tool(basic_path: Path) -> None:
    process = run(basic_path)
    assert (process.returncode, process.stdout) == (1, "")
    lines = process.stderr.splitlines()
    assert lines[0] == "error: missing prerequisites:"
    assert "  - Python 3.11 or later (python3 is missing)" in lines
    assert "  - Maven (mvn)" in lines
    assert ("  - a JDK 17 or 21 (JAVA_HOME or PATH)" in lines) is not has_jdk(basic_path)
    assert lines[-1].startswith("hint:  install them; Debian's names: python3 ")
    assert "not found" not in process.stderr


def test_suggests_homebrew(basic_path: Path, tmp_path: Path) -> None:
    write_tool(basic_path, "brew", "exit 0")
    process = run(basic_path, JAVA_HOME=jdk(tmp_path))
    assert process.stderr.splitlines()[-1] == "hint:  brew install python@3.12 openjdk@17 maven"


@pytest.mark.parametrize(
    ("script", "missing"),
    [
        (
            'if [ "$1" = -V ]; then echo "Python 3.9.2"; else exit 1; fi',
            "Python 3.11 or later (python3 is Python 3.9.2); name another with make PYTHON=...",
        ),
        ('case "$2" in *ensurepip*) exit 1;; esac', "Python's venv module"),
    ],
)
def test_rejects_an_unsupported_python(basic_path: Path, tmp_path: Path, script: str, missing: str) -> None:
    write_tool(basic_path, "python3", script)
    process = run(basic_path, JAVA_HOME=jdk(tmp_path))
    assert process.returncode == 1
    assert process.stderr.splitlines()[:3] == ["error: missing prerequisites:", f"  - {missing}", "  - Maven (mvn)"]


@pytest.mark.parametrize(
    ("version", "suitable"),
    [
        ("17.0.2", True),
        ("21", True),
        ("21-ea", False),
        ("11.0.20", False),
        ("1.8.0_392", False),
        ("170.1", False),
    ],
)
def test_finds_java_home_by_version(basic_path: Path, tmp_path: Path, version: str, suitable: bool) -> None:
    home = jdk(tmp_path, version)
    process = run(basic_path, "java-home", JAVA_HOME=home)
    assert (process.stdout.strip() == home) is suitable


def test_passes_when_nothing_is_missing(basic_path: Path, tmp_path: Path) -> None:
    """PYTHON names an interpreter that is not on PATH."""
    write_tool(basic_path, "mvn", "exit 0")
    process = run(basic_path, PYTHON=sys.executable, JAVA_HOME=jdk(tmp_path))
    assert (process.returncode, process.stdout, process.stderr) == (0, "", "")
