from __future__ import annotations

from pathlib import Path

import pytest

from outbox_kit.stack.layout import Layout
from outbox_kit.stack.logs import excerpt, exit_description, redact, rotate, tail


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path)
    layout.create()
    return layout


def test_returns_the_last_lines(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("one\ntwo\nthree")
    assert tail(tmp_path / "log", 2) == ["two", "three"]


def test_returns_no_lines_without_a_file(tmp_path: Path) -> None:
    assert tail(tmp_path / "log", 2) == []


def test_decodes_logs_with_invalid_bytes(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"\xff broken\n")
    assert tail(tmp_path / "log", 1) == ["\N{REPLACEMENT CHARACTER} broken"]


def test_excerpt_contains_an_error_before_shutdown_lines(tmp_path: Path) -> None:
    """An error that precedes many lines of a broker's shutdown must be in the excerpt."""
    shutdown_lines = [f"[now] INFO stopping {number}" for number in range(100)]
    (tmp_path / "log").write_text("\n".join(["[now] ERROR the disk is full", *shutdown_lines]))
    assert excerpt(tmp_path / "log", 20) == ["[now] ERROR the disk is full", "...", *shutdown_lines[-20:]]


def test_excerpt_without_errors_is_the_tail(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a\nb\nFATAL c\n")
    assert excerpt(tmp_path / "log", 2) == ["b", "FATAL c"]


@pytest.mark.parametrize(
    ("line", "description"),
    [
        ("INFO exited: kafka (exit status 1; not expected)", "exit status 1"),
        ("WARN exited: kafka (terminated by SIGKILL; not expected)", "terminated by SIGKILL"),
        ("INFO exited: kafka (exit status 0; expected)", "exit status 0"),
        ("INFO exited: connect (exit status 1; not expected)", ""),
    ],
)
def test_reads_the_exit_status_from_the_log_of_supervisor(layout: Layout, line: str, description: str) -> None:
    layout.log("supervisor").write_text(f"INFO spawned: 'kafka' with pid 7\n{line}\n")
    assert exit_description(layout, "kafka") == description


def test_new_start_replaces_logs(layout: Layout) -> None:
    layout.log("kafka").write_text("old")
    rotate(layout, ("kafka", "connect"))
    assert not layout.log("kafka").exists()
    assert (layout.logs / "kafka.previous.log").read_text() == "old"


def test_redacts_secrets() -> None:
    assert redact("login with hunter2 failed", ("hunter2",)) == "login with *** failed"
