"""All dependencies have exact versions with checksums. test_checksums.py tests that the checksums are checked."""

from __future__ import annotations

import re
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


def pins(name: str) -> dict[str, str]:
    """Return the versions in a requirements file that have a hash."""
    return {found[1]: found[2] for found in PIN.finditer((REQUIREMENTS / f"{name}.txt").read_text(encoding="utf-8"))}


def project(folder: Path = ROOT) -> dict[str, list[str]]:
    """Return the lists of requirements in a pyproject.toml, by name. Extras include the extras that they refer to."""
    data = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    name, extras = data["project"]["name"], data["project"]["optional-dependencies"]
    return {
        "dependencies": data["project"]["dependencies"],
        **{extra: with_referenced(entries, name, extras) for extra, entries in extras.items()},
        **data.get("dependency-groups", {}),
    }


def with_referenced(entries: list[str], name: str, extras: dict[str, list[str]]) -> list[str]:
    """Replace each reference to this project, such as outbox-kit[spark], with the requirements of its extras."""
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
    assert [line for line in PIN.sub("", text).splitlines() if line and not re.match(r" *#", line)] == []
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
