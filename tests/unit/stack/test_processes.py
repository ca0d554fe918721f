from __future__ import annotations

from pathlib import Path

import pytest

from outbox_kit.stack import processes
from outbox_kit.stack.layout import Layout
from outbox_kit.stack.processes import command_lines, find_processes, process_marker


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path)


def matches(monkeypatch: pytest.MonkeyPatch, layout: Layout, arguments: str) -> list[tuple[str, bool]]:
    """Return (service, is_backend) of the matching processes on a machine with one process."""
    monkeypatch.setattr(processes, "command_lines", lambda: {7: arguments})
    return [(process.service, process.is_backend) for process in find_processes(layout)]


@pytest.mark.parametrize(
    ("arguments", "service", "is_backend"),
    [
        ("/usr/bin/java -D{marker} -Xmx512m kafka.Kafka", "kafka", False),
        ("/my projects/dist/bin/postgres -D /data -c cluster_name={marker}", "kafka", False),
        ("postgres: {marker}: io worker 0", "kafka", True),
        ("/venv/bin/python3.11 -m supervisor.supervisord -i {marker}", "kafka", False),
    ],
)
def test_finds_programs_of_the_stack(
    monkeypatch: pytest.MonkeyPatch, layout: Layout, arguments: str, service: str, is_backend: bool
) -> None:
    """The marker may follow -D without a word boundary."""
    text = arguments.format(marker=process_marker(layout, service))
    assert matches(monkeypatch, layout, text) == [(service, is_backend)]


@pytest.mark.parametrize("arguments", ["grep {marker}", "vim notes-about-{marker}", "java -Dother=1", ""])
def test_ignores_other_programs(monkeypatch: pytest.MonkeyPatch, layout: Layout, arguments: str) -> None:
    assert matches(monkeypatch, layout, arguments.format(marker=process_marker(layout, "kafka"))) == []


def test_uses_ps_without_proc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    listing = tmp_path / "ps"
    listing.write_text("#!/bin/sh\necho '  12 /usr/bin/java -Dx=1 Main'\necho '345 postgres: name: io worker'\n")
    listing.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(processes, "PROC", tmp_path / "absent")
    assert command_lines() == {12: "/usr/bin/java -Dx=1 Main", 345: "postgres: name: io worker"}
