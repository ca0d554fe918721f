"""verify: always every check in the same order; a system that is down is a failed check, not an exception."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.postgres.samples import DEPLOYED
from tests.unit.verification.samples import world as deployed_world

from outbox_common.schema_registry import RETRY
from outbox_kit.connect.client import ConnectorStatus
from outbox_kit.connect.state import ActualConnector
from outbox_kit.deployment import Deployment
from outbox_kit.errors import RefusedError, UnreachableError
from outbox_kit.kafka import client as kafka_client
from outbox_kit.kafka import dead_letters, verify_queries
from outbox_kit.pipeline import Connect, Environment, HttpService, Lock
from outbox_kit.rules import Check, Status
from outbox_kit.verification import canary, progress_checks, run, verify
from outbox_kit.verification.canary_contract import Told
from outbox_kit.verification.check_catalogue import IDS
from outbox_kit.verification.snapshot import Answer, World, read_world

SYSTEMS = ["postgres", "kafka", "registry", "connect"]


@pytest.fixture
def deployment(
    deployed: Callable[..., Deployment], environment: Environment, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> Deployment:
    """All four systems at a port where nobody listens."""
    for module in (kafka_client, verify_queries, dead_letters):
        monkeypatch.setattr(module, "REQUEST_TIMEOUT_S", 0.3)
    monkeypatch.setattr("outbox_common.schema_registry.RETRY", RETRY.new(backoff_factor=0))
    url = f"http://127.0.0.1:{free_port}"
    source = environment.source.model_copy(update={"host": "127.0.0.1", "port": free_port})
    return deployed(source=source, registry=HttpService(url=url), connect=Connect(url=url))


@pytest.fixture
def world(deployment: Deployment, lock: Lock, monkeypatch: pytest.MonkeyPatch) -> World:
    """All is well, and everything moves; what verify reads is this."""
    deployment.write_lock(lock)
    found = deployed_world(deployment, lock)
    monkeypatch.setattr(run, "read_world", lambda *_: found)
    monkeypatch.setattr(progress_checks, "check", lambda *_, **__: [])
    return found


def flies(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Told, float]]:
    """A canary that arrives; returns what it was given."""
    asked: list[tuple[Told, float]] = []

    def check(_: Deployment, told: Told, *, seconds: float) -> list[Check]:
        asked.append((told, seconds))
        return [Check(each.id, Status.PASS, "there", "there") for each in canary.RULES]

    monkeypatch.setattr(canary, "check", check)
    return asked


def test_nothing_answers(deployment: Deployment, lock: Lock) -> None:
    deployment.write_lock(lock)
    said: list[str] = []
    found = verify(deployment, said.append)
    assert [check.id for check in found] == IDS
    failed = [check.id for check in found if check.status is Status.FAIL]
    assert failed == [f"{name}.reachable" for name in SYSTEMS]
    assert {check.status for check in found if check.id not in failed} == {Status.UNKNOWN}
    assert all(check.seen and check.expected and check.remedy for check in found)
    assert said == [*(f"look at {name}" for name in SYSTEMS), "look again at what must move"]
    assert "owner-secret" not in repr(found)


def test_before_the_first_apply_there_is_one_clear_line(deployment: Deployment) -> None:
    with pytest.raises(RefusedError) as caught:
        verify(deployment, lambda _: None)
    assert caught.value.message == "pipeline 'library' is not deployed to 'fixed' yet: run `outbox apply`"
    assert caught.value.hint == ""


def test_a_lock_file_without_a_database_is_no_deployment(deployment: Deployment, lock: Lock) -> None:
    """An apply that was refused half way has written schemas or nothing."""
    deployment.write_lock(lock.model_copy(update={"source": None}))
    with pytest.raises(RefusedError, match="is not deployed"):
        verify(deployment, lambda _: None)


def test_all_is_well(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = flies(monkeypatch)
    found = verify(world.deployment, lambda _: None, canary_seconds=7)
    assert [check.id for check in found] == [each for each in IDS if each not in [r.id for r in progress_checks.RULES]]
    not_well = {check.id: check.seen for check in found if check.status is not Status.PASS}
    assert not_well == {}
    ((told, seconds),) = asked
    assert (told.strict, told.partitions, told.epoch, list(told.schemas), seconds) == (True, 1, 2, [5], 7)


def test_no_canary_is_unknown(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = flies(monkeypatch)
    found = verify(world.deployment, lambda _: None, canary_seconds=None)
    flown = [check for check in found if check.id.startswith("canary.")]
    assert {(check.status, check.seen) for check in flown} == {(Status.UNKNOWN, "not sent: --no-canary")}
    assert asked == []


def test_a_connector_that_is_to_be_stopped_gets_no_canary(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = flies(monkeypatch)
    environment = world.deployment.environment
    connector = environment.connector.model_copy(update={"state": "stopped"})
    stopped = replace(world.deployment, environment=environment.model_copy(update={"connector": connector}))
    monkeypatch.setattr(run, "read_world", lambda *_: replace(world, deployment=stopped))
    found = {check.id: check for check in verify(stopped, lambda _: None)}
    assert found["canary.delivered"].seen == "not sent: connector.state is stopped"
    assert asked == []


def broken(world: World, identifier: str) -> World:
    """One fault that stops the canary."""
    postgres, kafka, connect = world.postgres.look, world.kafka.look, world.connect.look
    assert postgres is not None
    assert kafka is not None
    assert connect is not None
    actual = connect.observed.actual
    down: Answer[Any] = Answer(None, UnreachableError("down"))

    def with_connector(found: ActualConnector) -> World:
        observed = replace(connect.observed, actual=found)
        return replace(world, connect=Answer(replace(connect, observed=observed)))

    def with_database(**changes: Any) -> World:  # noqa: ANN401 - fields of ActualDatabase
        return replace(world, postgres=Answer(replace(postgres, actual=replace(DEPLOYED, **changes))))

    cases: dict[str, Callable[[], World]] = {
        "postgres.reachable": lambda: replace(world, postgres=down),
        "postgres.table": lambda: with_database(columns={}),
        "postgres.slot": lambda: with_database(slot={**(DEPLOYED.slot or {}), "plugin": "x"}),
        "postgres.slot-active": lambda: with_database(slot={**(DEPLOYED.slot or {}), "active": False}),
        "kafka.reachable": lambda: replace(world, kafka=down),
        "kafka.topics": lambda: replace(world, kafka=Answer(replace(kafka, actual={}))),
        "connect.reachable": lambda: replace(world, connect=down),
        "connect.connector": lambda: with_connector(ActualConnector(None, None, [])),
        "connect.running": lambda: with_connector(replace(actual, status=ConnectorStatus("PAUSED", (), ()))),
    }
    return cases[identifier]()


@pytest.mark.parametrize("identifier", run.CANARY_NEEDS)
def test_the_canary_does_not_fly_into_a_wall(world: World, monkeypatch: pytest.MonkeyPatch, identifier: str) -> None:
    """And every check that it waits for can stop it: one that is renamed would quietly stop guarding it."""
    asked = flies(monkeypatch)
    monkeypatch.setattr(run, "read_world", lambda *_: broken(world, identifier))
    found = {check.id: check for check in verify(world.deployment, lambda _: None)}
    assert found[identifier].status is Status.FAIL
    assert asked == []
    assert found["canary.delivered"].status is Status.UNKNOWN
    assert identifier in found["canary.delivered"].seen


def test_a_fault_that_does_not_stop_the_canary(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = flies(monkeypatch)
    registry: Answer[Any] = Answer(None, UnreachableError("down", "start it"))
    monkeypatch.setattr(run, "read_world", lambda *_: replace(world, registry=registry))
    found = {check.id: check for check in verify(world.deployment, lambda _: None)}
    assert (found["registry.reachable"].seen, found["registry.reachable"].remedy) == ("down", "start it")
    assert found["registry.ids"].seen == "see registry.reachable"
    assert len(asked) == 1


def test_a_canary_that_does_not_arrive(deployment: Deployment, lock: Lock) -> None:
    """Its topic cannot be read: the first check fails, the others are unknown."""
    found = canary.check(deployment, Told(True, 1, lock.source_epoch, {}), seconds=1)
    assert [check.id for check in found] == [each.id for each in canary.RULES]
    assert [check.status for check in found] == [Status.FAIL, *[Status.UNKNOWN] * (len(found) - 1)]
    assert found[0].remedy


def test_each_round_asks_the_registry_anew(deployment: Deployment, lock: Lock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its client keeps versions: one that was deleted would stay for as long as `--every` runs."""
    forgotten: list[object] = []

    def forget(client: object) -> None:
        forgotten.append(client)

    monkeypatch.setattr(type(deployment.registry), "forget", forget)
    read_world(deployment, lock, lambda _: None)
    assert forgotten == [deployment.registry]
