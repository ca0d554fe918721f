"""Plan and apply as a whole: the database's state is given, Kafka has nothing to do, the rest is HTTP."""

from __future__ import annotations

import importlib
from contextlib import nullcontext

import pytest
from tests.unit.deployment.samples import Given

from outbox_kit.connect import lifecycle as connect_lifecycle
from outbox_kit.postgres.state import ActualDatabase

# The package exports a function of the same name as its module.
apply_module = importlib.import_module("outbox_kit.deployment.execution")
plan_module = importlib.import_module("outbox_kit.deployment.plan")


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Given:
    """What is read of the database; topics are as they should be."""
    monkeypatch.setattr(connect_lifecycle, "LOOK_EVERY_S", 0.01)

    def database(actual: ActualDatabase) -> None:
        for module in (plan_module, apply_module):
            monkeypatch.setattr(module, "read_database", lambda _: actual)
        monkeypatch.setattr(plan_module, "plan_kafka", lambda _: [])
        monkeypatch.setattr(plan_module, "refuse_other_cluster", lambda *_: "cluster-1")
        monkeypatch.setattr(apply_module, "exclusive", lambda *_, **__: nullcontext())
        monkeypatch.setattr(apply_module, "wait_reading", lambda _: None)

    return database
