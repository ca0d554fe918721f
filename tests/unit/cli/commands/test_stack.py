"""`outbox stack logs`: prints lines of a log."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from outbox_kit.cli.app import app
from outbox_kit.stack import Stack


def test_a_log_cannot_control_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stack, "logs", lambda *_: "first \x1b[2J\nsecond")
    assert CliRunner().invoke(app, ["stack", "logs", "kafka"]).stdout == "first \\x1b[2J\nsecond\n"
