"""verify: the order of the checks, unreachable systems, and the prerequisites of the canary."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import psycopg
import pytest
from tests.unit.postgres.samples import DEPLOYED, SLOT
from tests.unit.verification.samples import live_state

from outbox_events.errors import RefusedError, RejectedError, UnreachableError
from outbox_kit.connect.client import ConnectorStatus
from outbox_kit.connect.state import ActualConnector
from outbox_kit.deployment import Deployment
from outbox_kit.pipeline import Connect, Environment, HttpService, Kafka, Lock
from outbox_kit.postgres.triggers_and_rules import TriggersAndRules
from outbox_kit.results.checks import Check, Status
from outbox_kit.verification import canary, comparison_of, progress_checks, recent_rows, run, verify
from outbox_kit.verification.canary import CanaryContract
from outbox_kit.verification.live_state import LiveState, ReadResult
from outbox_kit.verification.recent_rows import RecentRows
from outbox_lab.documents.check_catalogue import DEFAULT_IDS as IDS

SYSTEMS = ["postgres", "kafka", "registry", "connect"]


@pytest.fixture
def deployment(
    deployed: Callable[..., Deployment], environment: Environment, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> Deployment:
    """Return a deployment whose systems are unreachable."""
    monkeypatch.setattr(run, "READ_LIMIT_S", 0.3)
    url = f"http://127.0.0.1:{free_port}"
    source = environment.source.model_copy(update={"host": "127.0.0.1", "port": free_port})
    made = deployed(source=source, registry=HttpService(url=url), connect=Connect(url=url))
    return replace(made, read_seconds=0.3)


@pytest.fixture
def live(deployment: Deployment, lock: Lock, monkeypatch: pytest.MonkeyPatch) -> LiveState:
    """Make verify read a state in which every check passes."""
    deployment.write_lock(lock)
    actual = live_state(deployment, lock)
    monkeypatch.setattr(run, "read_live_state", lambda *_: actual)
    monkeypatch.setattr(progress_checks, "check", lambda *_, **__: [])
    monkeypatch.setattr(recent_rows, "read", lambda _: ReadResult(RecentRows([], {})))
    return actual


def deliver(monkeypatch: pytest.MonkeyPatch) -> list[tuple[CanaryContract, float]]:
    """Make the canary arrive, and return the arguments of its check."""
    sent: list[tuple[CanaryContract, float]] = []

    def check(_: Deployment, contract: CanaryContract, *, seconds: float, hooks: str) -> list[Check]:
        del hooks
        sent.append((contract, seconds))
        return [Check(item.id, Status.PASS, "arrived", "arrived") for item in canary.RULES]

    monkeypatch.setattr(canary, "check", check)
    return sent


def test_fails_checks_of_unreachable_systems(deployment: Deployment, lock: Lock) -> None:
    deployment.write_lock(lock)
    messages: list[str] = []
    actual = verify(deployment, messages.append)
    assert [check.id for check in actual] == IDS
    failed = [check.id for check in actual if check.status is Status.FAIL]
    assert failed == [f"{name}.reachable" for name in SYSTEMS]
    assert [check.id for check in actual if check.status is Status.PASS] == ["path.interrupted"]
    not_passed = [check for check in actual if check.status is not Status.PASS]
    assert {check.status for check in not_passed if check.id not in failed} == {Status.UNKNOWN}
    assert all(check.seen and check.expected and check.remedy for check in not_passed)
    assert messages == [*(f"read {name}" for name in SYSTEMS), "check for progress"]
    assert "owner-secret" not in repr(actual)


def test_limits_the_time_of_systems_that_do_not_respond(
    deployed: Callable[..., Deployment],
    environment: Environment,
    lock: Lock,
    silent_port: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The systems accept connections. Without the limit, each request would end only after 20 s."""
    assert run.READ_LIMIT_S <= 5
    monkeypatch.setattr(run, "READ_LIMIT_S", 0.3)
    url, source = f"http://127.0.0.1:{silent_port}", environment.source
    deployment = deployed(
        source=source.model_copy(update={"host": "127.0.0.1", "port": silent_port}),
        kafka=Kafka(bootstrap_servers=f"127.0.0.1:{silent_port}"),
        registry=HttpService(url=url),
        connect=Connect(url=url),
    )
    deployment.write_lock(lock)
    started_at = time.monotonic()
    actual = {check.id: check for check in verify(deployment, lambda _: None)}
    assert time.monotonic() - started_at < 10
    assert "timeout" in actual["postgres.reachable"].seen
    assert "time limit 0.3 s" in actual["kafka.reachable"].seen
    assert actual["registry.reachable"].seen.endswith(": no response within 0.3 s")
    assert actual["connect.reachable"].seen == f"Kafka Connect at {url}: GET /: no response within 0.3 s"


def test_reports_one_message_before_the_first_apply(deployment: Deployment) -> None:
    with pytest.raises(RefusedError) as caught:
        verify(deployment, lambda _: None)
    assert caught.value.message == "pipeline 'library' is not deployed to 'fixed' yet"
    assert caught.value.hint == "run `outbox apply`"


def test_reports_a_lock_file_without_a_database(deployment: Deployment, lock: Lock) -> None:
    """A rejected apply may have written only the schemas to it."""
    deployment.write_lock(lock.model_copy(update={"source": None}))
    with pytest.raises(RefusedError, match="is not deployed"):
        verify(deployment, lambda _: None)


def test_reports_an_incomplete_recovery(deployment: Deployment, lock: Lock) -> None:
    deployment.write_lock(lock.model_copy(update={"source": None, "unfinished": "recover"}))
    with pytest.raises(RefusedError, match="recovery"):
        verify(deployment, lambda _: None)


def test_passes_for_a_deployed_pipeline_with_canary(live: LiveState, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = deliver(monkeypatch)
    actual = verify(live.deployment, lambda _: None, canary_seconds=7)
    assert [check.id for check in actual] == [item for item in IDS if item not in [r.id for r in progress_checks.RULES]]
    not_passed = {check.id: check.seen for check in actual if check.status is not Status.PASS}
    assert not_passed == {}
    ((contract, seconds),) = sent
    assert (contract.is_strict, contract.partition_count, contract.source_epoch, list(contract.schemas), seconds) == (
        True,
        1,
        2,
        [5],
        7,
    )


def test_compares_states_only_on_request(live: LiveState, monkeypatch: pytest.MonkeyPatch) -> None:
    deliver(monkeypatch)
    compared = Check("states.complete", Status.FAIL, "1 of 2 aggregates", "all")
    monkeypatch.setattr(run.state_checks, "check", lambda *_, **__: [compared])
    states = comparison_of(live.deployment, seconds=1, max_records=1)
    assert verify(live.deployment, lambda _: None, states=states)[-1] == compared
    assert compared not in verify(live.deployment, lambda _: None)


def test_states_are_repaired_after_an_open_transaction(live: LiveState, monkeypatch: pytest.MonkeyPatch) -> None:
    """Consumers cannot read the records that follow, so these states can be equal already."""
    failed = Check("states.complete", Status.FAIL, "1 of 2", "all", remedy="run `outbox stuck --resend`")
    monkeypatch.setattr(run.state_checks, "check", lambda *_, **__: [failed])
    states = comparison_of(live.deployment, seconds=1, max_records=1)
    for status, count in ((Status.FAIL, 1), (Status.PASS, 0)):
        checks = [Check("kafka.open-transactions", status, "", "")]
        monkeypatch.setattr(run, "_default_checks", MagicMock(return_value=checks))
        remedy = verify(live.deployment, lambda _: None, states=states)[-1].remedy
        assert remedy.count("see kafka.open-transactions") == count
        assert remedy.endswith(failed.remedy)


def test_canary_checks_are_unknown_without_a_canary(live: LiveState, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = deliver(monkeypatch)
    actual = verify(live.deployment, lambda _: None, canary_seconds=None)
    canary_checks = [check for check in actual if check.id.startswith("canary.")]
    assert {(check.status, check.seen) for check in canary_checks} == {(Status.UNKNOWN, "not sent: --no-canary")}
    assert sent == []


@pytest.mark.parametrize(("wrong_slot", "remedy"), [(False, "run `outbox apply`"), (True, "see postgres.slot: ")])
def test_a_stopped_connector_is_not_started_before_the_slot_is_right(
    live: LiveState, monkeypatch: pytest.MonkeyPatch, wrong_slot: bool, remedy: str
) -> None:
    state = broken(live, "connect.running")
    if wrong_slot:
        state = replace(state, postgres=broken(live, "postgres.slot").postgres)
    monkeypatch.setattr(run, "read_live_state", lambda *_: state)
    actual = {check.id: check for check in verify(live.deployment, lambda _: None)}
    assert actual["connect.running"].remedy.startswith(remedy)


def test_sends_no_canary_to_a_stopped_connector(live: LiveState, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = deliver(monkeypatch)
    environment = live.deployment.environment
    connector = environment.connector.model_copy(update={"state": "stopped"})
    stopped = replace(live.deployment, environment=environment.model_copy(update={"connector": connector}))
    monkeypatch.setattr(run, "read_live_state", lambda *_: replace(live, deployment=stopped))
    actual = {check.id: check for check in verify(stopped, lambda _: None)}
    assert actual["canary.delivered"].seen == "not sent: connector.state is stopped"
    assert sent == []


def broken(live: LiveState, identifier: str) -> LiveState:
    """Return the state with a fault that prevents the delivery of the canary."""
    postgres, kafka, connect = live.postgres.value, live.kafka.value, live.connect.value
    assert postgres is not None
    assert kafka is not None
    assert connect is not None
    actual = connect.observed.actual
    down: ReadResult[Any] = ReadResult(None, UnreachableError("down"))

    def with_connector(connector: ActualConnector) -> LiveState:
        observed = replace(connect.observed, actual=connector)
        return replace(live, connect=ReadResult(replace(connect, observed=observed)))

    def with_database(**changes: Any) -> LiveState:  # noqa: ANN401 - fields of ActualDatabase
        return replace(live, postgres=ReadResult(replace(postgres, actual=replace(DEPLOYED, **changes))))

    cases: dict[str, Callable[[], LiveState]] = {
        "postgres.reachable": lambda: replace(live, postgres=down),
        "postgres.identity": lambda: with_database(system_identifier="other"),
        "postgres.table": lambda: with_database(columns={}),
        "postgres.table-identity": lambda: with_database(table_oid=1),
        "postgres.slot": lambda: with_database(slot=replace(SLOT, plugin="x")),
        "postgres.slot-active": lambda: with_database(slot=replace(SLOT, active=False)),
        "kafka.reachable": lambda: replace(live, kafka=down),
        "kafka.cluster": lambda: replace(live, kafka=ReadResult(replace(kafka, recorded_cluster_id="other"))),
        "kafka.topics": lambda: replace(live, kafka=ReadResult(replace(kafka, actual={}))),
        "connect.reachable": lambda: replace(live, connect=down),
        "connect.cluster": lambda: replace(live, connect=ReadResult(replace(connect, cluster_id="other"))),
        "connect.connector": lambda: with_connector(ActualConnector(None, None, [])),
        "connect.running": lambda: with_connector(replace(actual, status=ConnectorStatus("PAUSED", (), ()))),
    }
    return cases[identifier]()


@pytest.mark.parametrize("identifier", run.CANARY_PREREQUISITES)
def test_sends_no_canary_that_cannot_be_delivered(
    live: LiveState, monkeypatch: pytest.MonkeyPatch, identifier: str
) -> None:
    """Every id in CANARY_PREREQUISITES is the id of an existing check."""
    sent = deliver(monkeypatch)
    monkeypatch.setattr(run, "read_live_state", lambda *_: broken(live, identifier))
    actual = {check.id: check for check in verify(live.deployment, lambda _: None)}
    assert actual[identifier].status is Status.FAIL
    assert sent == []
    assert actual["canary.delivered"].status is Status.UNKNOWN
    assert identifier in actual["canary.delivered"].seen


def test_sends_the_canary_despite_unrelated_faults(live: LiveState, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = deliver(monkeypatch)
    registry: ReadResult[Any] = ReadResult(None, UnreachableError("down", "start it"))
    monkeypatch.setattr(run, "read_live_state", lambda *_: replace(live, registry=registry))
    actual = {check.id: check for check in verify(live.deployment, lambda _: None)}
    assert (actual["registry.reachable"].seen, actual["registry.reachable"].remedy) == ("down", "start it")
    assert actual["registry.ids"].seen == "see registry.reachable"
    assert len(sent) == 1


def test_reports_a_canary_that_does_not_arrive(deployment: Deployment, lock: Lock) -> None:
    """The canary's topic cannot be read, so the first check fails and the other checks are unknown."""
    actual = canary.check(deployment, CanaryContract(True, 1, lock.source_epoch, {}), seconds=1)
    assert [check.id for check in actual] == [item.id for item in canary.RULES]
    assert [check.status for check in actual] == [Status.FAIL, *[Status.UNKNOWN] * (len(actual) - 1)]
    assert actual[0].remedy


def test_names_the_triggers_in_the_remedies_of_a_failed_canary(deployment: Deployment, lock: Lock) -> None:
    hooks = TriggersAndRules(triggers=("nulls (function nulls)",), rules=("drops",), policies=("tenant",)).text
    contract = CanaryContract(True, 1, lock.source_epoch, {})
    failed, *unknown = canary.check(deployment, contract, seconds=1, hooks=hooks)
    assert "triggers: nulls (function nulls); rules: drops; policies: tenant" in failed.remedy
    assert all("nulls" not in check.remedy for check in unknown)


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (psycopg.errors.CheckViolation, "change constraint known_types so that it accepts"),
        (psycopg.errors.NotNullViolation, 'alter table "public"."outbox_event" alter column "needed" drop not null'),
        (psycopg.errors.InsufficientPrivilege, 'grant select, insert, delete on "public"."outbox_event" to "owner"'),
    ],
)
def test_hint_for_a_rejected_canary_names_the_cause(
    deployment: Deployment, lock: Lock, monkeypatch: pytest.MonkeyPatch, error: type[psycopg.Error], hint: str
) -> None:
    def deliver_rejected(*_: object) -> None:
        raise RejectedError("the row was rejected", "see the log") from error()

    diagnostics = SimpleNamespace(constraint_name="known_types", column_name="needed")
    monkeypatch.setattr(error, "diag", diagnostics)
    monkeypatch.setattr(canary, "_deliver", deliver_rejected)
    failed = canary.check(deployment, CanaryContract(True, 1, lock.source_epoch, {}), seconds=1)[0]
    assert hint in failed.remedy
