"""verify: a system that does not answer is a failed check, and the canary is not waited for in vain."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable

import pytest
from tests.unit.postgres.samples import DEPLOYED

from outbox_kit.checking import Check, Status
from outbox_kit.connect import checks as connect_checks
from outbox_kit.connect.state import ActualConnector
from outbox_kit.deployment import Deployment
from outbox_kit.errors import OutboxKitError, RejectedError
from outbox_kit.kafka import checks as kafka_checks
from outbox_kit.kafka import client as kafka_client
from outbox_kit.pipeline import Environment, HttpService, Lock, Pipeline
from outbox_kit.postgres import checks as postgres_checks
from outbox_kit.registry import checks as registry_checks
from outbox_kit.verification import canary, run, verify

SYSTEMS = ["postgres", "kafka", "registry", "connect"]


@pytest.fixture
def deployment(
    deployed: Callable[..., Deployment],
    environment: Environment,
    free_port: int,
    monkeypatch: pytest.MonkeyPatch,
) -> Deployment:
    """All four systems at a port where nobody listens."""
    monkeypatch.setattr(kafka_client, "REQUEST_TIMEOUT_S", 0.3)
    registry = "confluent_kafka.schema_registry._sync.schema_registry_client"
    monkeypatch.setattr(f"{registry}.full_jitter", lambda *_: 0)
    http = HttpService(url=f"http://127.0.0.1:{free_port}")
    source = environment.source.model_copy(update={"host": "127.0.0.1", "port": free_port})
    return deployed(source=source, registry=http, connect=http)


def test_nothing_answers(deployment: Deployment) -> None:
    said: list[str] = []
    found = verify(deployment, said.append)
    assert [check.id for check in found] == [*(f"{name}.reachable" for name in SYSTEMS), "canary.delivered"]
    assert {check.status for check in found} == {Status.FAIL}
    assert all(check.seen and check.expected and check.remedy for check in found)
    assert said == [f"check {name}" for name in SYSTEMS]
    assert "owner-secret" not in repr(found)


def answering(monkeypatch: pytest.MonkeyPatch, fails: str = "") -> None:
    """Every system answers with one good check, but for the one check that fails."""
    ids = {
        "postgres": "postgres.table",
        "kafka": "kafka.topics",
        "registry": "registry.ids",
        "connect": "connect.running",
    }
    for name, identifier in ids.items():
        status = Status.FAIL if identifier == fails else Status.PASS
        check = Check(identifier, status, "seen", "expected", "remedy")
        monkeypatch.setattr(run, f"_{name}", lambda *_, check=check: [check])


def send(monkeypatch: pytest.MonkeyPatch, outcome: list[Check] | OutboxKitError) -> list[float]:
    """A canary with a known end; returns the bounds that it was given."""
    asked: list[float] = []

    def flies(*_: object, seconds: float) -> list[Check]:
        asked.append(seconds)
        if isinstance(outcome, OutboxKitError):
            raise outcome
        return outcome

    monkeypatch.setattr(canary, "run", flies)
    return asked


def test_the_canary_flies_when_all_is_well(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch)
    asked = send(monkeypatch, [Check("canary.delivered", Status.PASS, "there", "there")])
    found = verify(deployment, lambda _: None, canary_seconds=7)
    assert [check.status for check in found] == [Status.PASS] * 5
    assert asked == [7]


@pytest.mark.parametrize("fails", ["postgres.table", "kafka.topics", "connect.running"])
def test_the_canary_does_not_fly_into_a_wall(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    answering(monkeypatch, fails)
    asked = send(monkeypatch, [])
    found = verify(deployment, lambda _: None)
    assert [check.id for check in found if check.status is Status.FAIL] == [fails, "canary.delivered"]
    assert asked == []


def test_a_fault_that_does_not_stop_the_canary(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, "registry.ids")
    asked = send(monkeypatch, [Check("canary.delivered", Status.PASS, "there", "there")])
    verify(deployment, lambda _: None)
    assert asked == [60]


def test_a_canary_that_does_not_arrive(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch)
    send(monkeypatch, RejectedError("it said no", "do this"))
    last = verify(deployment, lambda _: None)[-1]
    assert last == Check("canary.delivered", Status.FAIL, "it said no", "an answer", "do this")


def test_what_the_canary_needs_are_checks_that_exist(library: Pipeline, environment: Environment, lock: Lock) -> None:
    """A check that is renamed would quietly stop guarding the canary."""
    found = [
        *postgres_checks.run(library, environment, DEPLOYED, lock.source),
        *kafka_checks.run([], {}),
        *registry_checks.run([], {}, lock),
        *connect_checks.run("c", {"connector.class": "x"}, ActualConnector(None, None, []), plugins=[]),
    ]
    ids = [check.id for check in found]
    assert len(ids) == len(set(ids))
    assert set(run.CANARY_NEEDS) <= {*ids, *(f"{name}.reachable" for name in SYSTEMS)}
    assert all(check.id.partition(".")[0] in SYSTEMS for check in found)


def test_checks_become_json() -> None:
    check = Check("a.b", Status.FAIL, "1", "2", "do this")
    assert json.loads(json.dumps(dataclasses.asdict(check))) == {
        "id": "a.b",
        "status": "fail",
        "seen": "1",
        "expected": "2",
        "remedy": "do this",
        "severity": "error",
    }
