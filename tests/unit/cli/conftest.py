"""Fixtures that run the command in this process, and a deployment with a given plan."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.cli.samples import SECRETS, RunMain

from outbox_kit import deployment
from outbox_kit.cli import main
from outbox_kit.deployment import Plan
from outbox_kit.results.changes import Change


@pytest.fixture
def run_main(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kept_signal_handlers: None
) -> RunMain:
    """Run main() in this process, which is faster. Return the exit code, stdout and stderr."""

    del kept_signal_handlers

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.chdir(workspace)
        monkeypatch.setattr(sys, "argv", ["outbox", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        code = caught.value.code
        return code if isinstance(code, int) else 1 if code else 0, *capsys.readouterr()

    for name in [name for name in os.environ if name.startswith("OUTBOX_")]:
        monkeypatch.delenv(name)
    return run


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch, workspace: Path) -> Callable[..., list[str]]:
    """Return a function that sets the pending changes and returns the list to which applied changes are added."""

    def set_plan(changes: list[Change]) -> list[str]:
        applied: list[str] = []

        def apply(*_: object, **__: object) -> list[Change]:
            applied.extend(change.object for change in changes)
            return changes

        plan = Plan("library", "production", tuple(changes))
        monkeypatch.setattr(deployment, "make_plan", lambda *_, **__: plan)
        monkeypatch.setattr(deployment, "apply", apply)
        for name, value in SECRETS.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(workspace)
        monkeypatch.setenv("OUTBOX_ENVIRONMENT", "production.example")
        return applied

    return set_plan
