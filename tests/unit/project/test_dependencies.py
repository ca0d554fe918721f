"""Dependencies: every download has an exact version and a checksum that is checked."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import outbox_events
import outbox_kit

ROOT = Path(__file__).resolve().parents[3]
LIBRARY = ROOT / "scripts" / "outbox_events"
REQUIREMENTS = ROOT / "requirements"
FILES = sorted(path.stem for path in REQUIREMENTS.glob("*.txt"))
PIN = re.compile(r"([a-z0-9.-]+)==([\w.+!-]+)(?: ; [^\\\n]+)? \\\n((?: {4}--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)")
CHECKING = (
    {"--require-hashes", "--only-binary=:all:"},
    # pip checks no hashes of what it installs into isolated build environments.
    {"--require-hashes", "--no-build-isolation"},
    {"--no-deps", "--no-index"},
    {"--no-deps", "--no-build-isolation", "-e", "."},
)
"""Options with which pip checks the hash of each download, or downloads nothing."""


def pins(name: str) -> dict[str, str]:
    """Return the versions in a requirements file that have a hash."""
    return {found[1]: found[2] for found in PIN.finditer((REQUIREMENTS / f"{name}.txt").read_text(encoding="utf-8"))}


def project(folder: Path = ROOT) -> dict[str, list[str]]:
    """Return the lists of requirements in a pyproject.toml, by name. Extras include those that they refer to."""
    data = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    name, extras = data["project"]["name"], data["project"]["optional-dependencies"]
    return {
        "dependencies": data["project"]["dependencies"],
        **{extra: with_referenced(entries, name, extras) for extra, entries in extras.items()},
        **data.get("dependency-groups", {}),
    }


def with_referenced(entries: list[str], name: str, extras: dict[str, list[str]]) -> list[str]:
    """Replace each reference to this project, such as outbox-kit[spark], by the requirements of its extras."""
    result = []
    for entry in entries:
        requirement = Requirement(entry)
        if requirement.name == name:
            result += [item for extra in requirement.extras for item in with_referenced(extras[extra], name, extras)]
        else:
            result.append(entry)
    return result


def closure(entries: list[str]) -> set[str]:
    """Return the installed packages that the requirements need on this platform, directly or indirectly."""
    pending = [Requirement(entry) for entry in entries]
    visited: set[tuple[str, frozenset[str]]] = set()
    while pending:
        requirement = pending.pop()
        node = (canonicalize_name(requirement.name), frozenset(requirement.extras))
        if node not in visited:
            visited.add(node)
            pending += needed_by(requirement)
    return {name for name, _ in visited}


def needed_by(requirement: Requirement) -> list[Requirement]:
    try:
        entries = [Requirement(entry) for entry in metadata.distribution(requirement.name).requires or []]
    except metadata.PackageNotFoundError:  # a package of requirements/lock.txt
        return []
    environments = [{"extra": extra} for extra in ("", *requirement.extras)]
    return [
        entry for entry in entries if entry.marker is None or any(entry.marker.evaluate(item) for item in environments)
    ]


@pytest.mark.parametrize("name", FILES)
def test_requirements_have_only_exact_versions_with_hashes(name: str) -> None:
    text = (REQUIREMENTS / f"{name}.txt").read_text(encoding="utf-8")
    assert pins(name)
    assert [line for line in PIN.sub("", text).splitlines() if not re.match(r" *#", line)] == []
    assert "://" not in text


@pytest.mark.parametrize("name", [name for name in FILES if name not in {"development", "lock"}])
def test_all_files_have_the_versions_that_are_tested(name: str) -> None:
    assert pins(name).items() <= pins("development").items()


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("build", ["build"]),
        ("commands", ["dependencies"]),
        ("development", ["dependencies", "test", "build", "tools-image"]),
        ("lock", ["lock"]),
        ("pyspark", ["pyspark"]),
        ("spark-driver", ["spark-driver"]),
        ("tools-image", ["tools-image"]),
    ],
)
def test_requirements_contain_direct_and_indirect_dependencies(name: str, groups: list[str]) -> None:
    entries = [entry for group in groups for entry in project()[group]]
    assert closure(entries) - pins(name).keys() - {"outbox-events"} == set()


def test_requirements_of_services_contain_those_of_the_library() -> None:
    requirements = project(LIBRARY)
    entries = [entry for group in ("dependencies", "kafka", "avro") for entry in requirements[group]]
    assert closure(entries) - pins("events").keys() == set()


def test_the_kit_requires_the_library_of_its_version() -> None:
    assert outbox_events.__version__ == outbox_kit.__version__
    requirement = next(entry for entry in project()["dependencies"] if entry.startswith("outbox-events"))
    assert str(Requirement(requirement).specifier) == f"=={outbox_kit.__version__}"


def test_versions_in_pyproject_equal_those_in_the_requirements() -> None:
    exact = [
        entry.split("==")
        for entries in project().values()
        for entry in entries
        if "==" in entry
        if "outbox" not in entry
    ]
    assert [
        (name, version) for name, version in exact if pins("development").get(canonicalize_name(name)) != version
    ] == []


def unchecked(commands: list[list[str]]) -> list[list[str]]:
    """Return the pip commands that may download a file without checking its hash."""
    downloading = [words for words in commands if "pip" in words and "hash" not in words]
    assert downloading
    return [words for words in downloading if not any(options <= set(words) for options in CHECKING)]


def test_make_checks_hashes() -> None:
    done = subprocess.run(
        ["make", "-n", "-B", "build/stamps/venv", "requirements"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    assert unchecked([line.split() for line in done.stdout.splitlines() if " pip install " in line]) == []


FAKE_PYTHON = """\
#!/bin/sh
echo "$*" >>"$LOG"
case "$*" in
*"hatchling build"*) for folder; do :; done; mkdir -p "$folder" && touch "$folder/outbox_kit-1-py3-none-any.whl" ;;
*"pip hash"*) echo "--hash=sha256:00" ;;
*"--target build/images/tools"*) mkdir -p build/images/tools/bin && touch build/images/tools/bin/outbox ;;
esac
"""


def test_image_build_checks_hashes(tmp_path: Path) -> None:
    (tmp_path / "scripts" / "outbox_events").mkdir(parents=True)
    script = shutil.copy(ROOT / "scripts" / "image-python.sh", tmp_path / "scripts")
    python, log = tmp_path / "python", tmp_path / "log"
    python.write_text(FAKE_PYTHON, encoding="utf-8")
    python.chmod(0o755)
    subprocess.run(["sh", str(script), str(python)], env={**os.environ, "LOG": str(log)}, check=True)
    assert unchecked([line.split() for line in log.read_text(encoding="utf-8").splitlines()]) == []


# --- Maven

POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  {}
  <packaging>pom</packaging>
</project>
"""
COORDINATES = "<groupId>test</groupId><artifactId>base</artifactId><version>1</version>"
SETTINGS = """\
<settings>
  <mirrors><mirror><id>test</id><mirrorOf>*</mirrorOf><url>{}</url></mirror></mirrors>
</settings>
"""


def test_maven_rejects_a_wrong_checksum(tmp_path: Path) -> None:
    """Run Maven with this repository's .mvn/ on a module whose parent POM has a wrong checksum in the repository."""
    parent = tmp_path / "repository" / "test" / "base" / "1" / "base-1.pom"
    parent.parent.mkdir(parents=True)
    parent.write_text(POM.format(COORDINATES), encoding="utf-8")
    Path(f"{parent}.sha1").write_text("0" * 40, encoding="ascii")
    (tmp_path / "settings.xml").write_text(SETTINGS.format(parent.parents[3].as_uri()), encoding="utf-8")
    (tmp_path / "module").mkdir()
    child = f"<parent>{COORDINATES}<relativePath/></parent><artifactId>child</artifactId>"
    (tmp_path / "module" / "pom.xml").write_text(POM.format(child), encoding="utf-8")
    shutil.copytree(ROOT / ".mvn", tmp_path / ".mvn")
    command = ["mvn", "-q", "-B", "-s", "settings.xml", f"-Dmaven.repo.local={tmp_path / 'local'}"]
    done = subprocess.run(
        [*command, "-f", "module/pom.xml", "validate"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "Checksum validation failed" in done.stdout


def test_no_folder_overrides_the_options_of_maven() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert [name for name in tracked if ".mvn/" in name] == [".mvn/maven.config"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert not re.search(r"--lax-checksums|mvn\b.* -c ", makefile)
