from __future__ import annotations

from pathlib import Path

import pytest

from outbox_events.errors import ConfigurationError
from outbox_kit.stack.services import java
from outbox_kit.stack.services.java import find_java, java_version, parse_version

OPENJDK_17 = 'openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6)\n'


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (OPENJDK_17, 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "25.0.3" 2026-04-21 LTS', 25),
        ('java version "1.8.0_401"', 8),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "21.0.2" 2024-01-16', 21),
        ('openjdk version "22-ea" 2024-03-19', 22),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", None),
        ("", None),
    ],
)
def test_parses_the_major_version_of_java(text: str, version: int | None) -> None:
    assert parse_version(text) == version


def fake_java(home: Path, version: str, *, status: int = 0) -> Path:
    """Create an executable that responds to -version on stderr, as Java does."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\nexit {status}\n")
    executable.chmod(0o755)
    return executable


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Simulate a machine without Java: JAVA_HOME unset, an empty PATH, no installation folders."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"))
    monkeypatch.setattr(java, "JAVA_LOCATIONS", (f"{tmp_path}/usual/*/bin/java",))
    return tmp_path


def test_prefers_java_home(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(machine / "path", "17.0.1")
    expected = fake_java(machine / "home", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(machine / "home"))
    assert find_java() == expected


def test_skips_a_java_home_of_another_version(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(machine / "home", "25.0.3")
    monkeypatch.setenv("JAVA_HOME", str(machine / "home"))
    expected = fake_java(machine / "path", "17.0.15")
    assert find_java() == expected


def test_searches_standard_folders_last(machine: Path) -> None:
    fake_java(machine / "path", "11.0.2")
    expected = fake_java(machine / "usual" / "jdk-17", "17.0.15")
    assert find_java() == expected


def test_error_lists_versions_and_installation(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newer = fake_java(machine / "path", "25.0.3")
    broken = fake_java(machine / "usual" / "jdk", "17", status=1)
    monkeypatch.setattr("sys.platform", "linux")
    with pytest.raises(ConfigurationError) as caught:
        find_java()
    assert f"{newer} is version 25" in caught.value.message
    assert f"{broken} is unusable" in caught.value.message
    assert "apt-get install openjdk-17-jre-headless" in caught.value.hint


def test_reports_missing_java(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(ConfigurationError, match="no java was found") as caught:
        find_java()
    assert "brew install openjdk@17" in caught.value.hint
    assert machine.exists()


def test_returns_no_version_for_an_invalid_program(tmp_path: Path) -> None:
    assert java_version(tmp_path / "absent") is None
