"""Fixture: a deployment with a given plan."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.cli.samples import SECRETS

from outbox_kit import deployment
from outbox_kit.deployment import Plan
from outbox_kit.results.changes import Change


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch, workspace: Path) -> Callable[..., list[str]]:
    """Return a function that sets the pending changes; it returns the list of the changes that were applied."""

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
