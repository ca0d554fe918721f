"""Connector checks of verify."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.connect_samples import DESIRED, MOVED, PLUGIN, ROUTER, RUNNING, STOPPED

from outbox_kit import __version__
from outbox_kit.connect import checks
from outbox_kit.connect.checks import ConnectState
from outbox_kit.connect.client import ConnectorStatus, Validation
from outbox_kit.connect.config_diff import with_fingerprint
from outbox_kit.connect.conflicts import Duplicate
from outbox_kit.connect.state import EPOCH_KEY, ActualConnector
from outbox_kit.connect.verify_queries import ObservedConnect, Worker
from outbox_kit.results.checks import Check, Status, evaluate

CONFIG = {**DESIRED, "exactly.once.support": "required"}
VERSIONS = {PLUGIN: "3.7.0.Final", ROUTER: __version__}
OLD = {**VERSIONS, ROUTER: "0.0.1"}
OBSERVED = ObservedConnect(
    actual=ActualConnector(CONFIG, RUNNING, MOVED),
    cluster_id="k1",
    versions=VERSIONS,
    workers=[Worker("http://a:8083", VERSIONS)],
    url="http://a:8083",
    shared=[],
    orphans=[],
    validation=Validation({}, []),
)
LIVE = ConnectState("c", CONFIG, OBSERVED, "running", "required", "k1")
FAILED = ConnectorStatus(
    "RUNNING",
    ("FAILED",),
    ("org.apache.kafka.ConnectException: outer\n\tat x\nCaused by: java.X: inner\n\tat y",),
)
TWIN = Duplicate("slot.name", "s", "d")
NO_TASK = ConnectorStatus("RUNNING", (), ())


def run(live: ConnectState) -> dict[str, Check]:
    return {check.id: check for check in evaluate(checks.RULES, live)}


def not_passed(live: ConnectState) -> dict[str, str]:
    return {check.id: check.seen for check in run(live).values() if check.status is not Status.PASS}


def observed(**changes: Any) -> ConnectState:  # noqa: ANN401 - fields of ObservedConnect
    return replace(LIVE, observed=replace(OBSERVED, **changes))


def connector(
    config: dict[str, str] | None = CONFIG,
    status: ConnectorStatus | None = RUNNING,
    offsets: list[dict[str, Any]] = MOVED,
) -> ConnectState:
    return observed(actual=ActualConnector(config, status, offsets))


def test_passes_for_a_deployed_connector() -> None:
    assert list(run(LIVE)) == [item.id for item in checks.RULES]
    assert not_passed(LIVE) == {}
    assert all(not check.remedy for check in run(LIVE).values())


CASES: list[tuple[ConnectState, str, str]] = [
    (observed(cluster_id="k2"), "connect.cluster", "k2"),
    (observed(versions=OLD, workers=[Worker("http://a:8083", OLD)]), "connect.smt-version", "0.0.1"),
    (observed(workers=[Worker("http://b:1", {}, error="it is down")]), "connect.workers", "it is down"),
    (
        observed(workers=[Worker("http://b:1", VERSIONS, "k2")]),
        "connect.workers",
        "http://b:1 uses Kafka cluster k2, not k1",
    ),
    (
        observed(workers=[Worker("http://b:1", {PLUGIN: "3.7.0.Final"})]),
        "connect.workers",
        f"http://b:1 lacks {ROUTER}",
    ),
    (
        observed(workers=[Worker("http://b:1", {**VERSIONS, ROUTER: "0.0.1"})]),
        "connect.workers",
        f"http://b:1 has another version of {ROUTER}",
    ),
    (
        # The value is the name of a class, but the key is not a key that names a class.
        replace(
            observed(
                versions={**VERSIONS, "x.Other": "1"},
                workers=[Worker("http://b:1", VERSIONS)],
                actual=ActualConnector({**CONFIG, "note": "x.Other"}, RUNNING, MOVED),
            ),
            desired={**CONFIG, "note": "x.Other"},
        ),
        "connect.workers",
        "http://b:1 has another version of x.Other",
    ),
    (connector(status=FAILED), "connect.running", "connector RUNNING, tasks: FAILED; java.X: inner"),
    (connector(status=NO_TASK), "connect.running", "connector RUNNING, tasks: no task yet"),
    (connector(status=None), "connect.running", "no status yet"),
    (connector(status=STOPPED), "connect.running", "connector STOPPED, tasks: no task yet"),
    (replace(LIVE, desired_state="stopped"), "connect.running", "connector RUNNING, tasks: RUNNING"),
    (connector({**CONFIG, "a": "1"}), "connect.config", "differs in a"),
    (
        observed(validation=Validation({"database.user": ["refused"]}, [])),
        "connect.valid",
        "database.user: refused",
    ),
    (observed(validation=Validation({}, ["a.b"])), "connect.placeholders", "not resolved: a.b"),
    (
        observed(validation=Validation({"exactly.once.support": ["not enabled"]}, [])),
        "connect.exactly-once",
        "required; not enabled",
    ),
    (replace(LIVE, exactly_once="requested"), "connect.exactly-once", "required"),
    (
        observed(shared=[TWIN]),
        "connect.exclusive",
        TWIN.text,
    ),
    (observed(orphans=["d"]), "connect.exclusive", "connector 'd' also belongs to this pipeline"),
    (connector(offsets=[]), "connect.offsets", "no offset"),
    (connector(offsets=[{"partition": {}, "offset": {"other": 1}}]), "connect.offsets", "lsn None"),
]


@pytest.mark.parametrize(("live", "identifier", "seen"), CASES, ids=[f"{i}: {s}" for _, i, s in CASES])
def test_each_fault_fails_exactly_its_check(live: ConnectState, identifier: str, seen: str) -> None:
    named = {
        name: message
        for name, message in not_passed(live).items()
        if name != "connect.workers" or live.observed.workers
    }
    assert named == {identifier: seen}
    assert run(live)[identifier].remedy


def test_a_missing_plugin() -> None:
    versions = {PLUGIN: "3.7.0.Final"}
    actual = run(observed(versions=versions, workers=[Worker("http://a:8083", versions)]))
    assert {name for name, check in actual.items() if check.status is Status.FAIL} == {"connect.plugins"}
    assert actual["connect.plugins"].seen == f"not installed: {ROUTER}"
    assert actual["connect.smt-version"].status is Status.UNKNOWN


@pytest.mark.parametrize(
    ("version", "status"),
    [
        ("3.6.2.Final", Status.FAIL),
        ("2.7.4.Final-redhat-00001", Status.FAIL),
        ("3.7.1.Final", Status.PASS),
        ("3.10.0.Final", Status.PASS),
        ("4.0.0.Beta1", Status.PASS),
        ("unknown", Status.UNKNOWN),
    ],
)
def test_an_old_debezium_fails_on_any_worker(version: str, status: Status) -> None:
    versions = {**VERSIONS, PLUGIN: version}
    for live in (observed(versions=versions), observed(workers=[Worker("http://b:1", versions)])):
        actual = run(live)["connect.debezium-version"]
        assert (actual.status, version in actual.seen) == (status, True)


def test_debezium_is_unknown_if_not_installed_and_passes_if_not_used() -> None:
    without = {ROUTER: __version__}
    unknown = run(observed(versions=without, workers=[]))["connect.debezium-version"]
    assert unknown.status is Status.UNKNOWN
    live = replace(observed(versions=without, workers=[]), desired={"connector.class": "x.Other"})
    assert run(live)["connect.debezium-version"].status is Status.PASS


def test_checks_are_unknown_without_a_connector() -> None:
    actual = run(observed(actual=ActualConnector(None, None, []), validation=None))
    assert {name for name, check in actual.items() if check.status is Status.FAIL} == {"connect.connector"}
    unknown = {name for name, check in actual.items() if check.status is Status.UNKNOWN}
    assert unknown == {
        "connect.running",
        "connect.config",
        "connect.valid",
        "connect.placeholders",
        "connect.exactly-once",
        "connect.offsets",
    }


@pytest.mark.parametrize(("live", "remedy"), [("2", "run `outbox apply`"), ("4", "restore the lock file")])
def test_an_epoch_above_that_of_the_lock_file_needs_the_lock_file(live: str, remedy: str) -> None:
    desired = {**CONFIG, EPOCH_KEY: "3"}
    actual = run(replace(connector({**CONFIG, EPOCH_KEY: live}), desired=desired))["connect.config"]
    assert actual.remedy.startswith(remedy)


def test_harmful_foreign_change_needs_the_states_again() -> None:
    written = with_fingerprint("p", CONFIG)
    for key, needed in (("skipped.operations", True), ("poll.interval.ms", False)):
        live = replace(connector({**written, key: "1"}), last_working=written, resend_steps="`outbox backfill`")
        remedy = run(live)["connect.config"].remedy
        assert ("outbox apply" in remedy, "outbox backfill" in remedy, key in remedy) == (True, needed, needed)


def test_declared_state_passes() -> None:
    stopped = replace(connector(status=STOPPED), desired_state="stopped")
    assert not_passed(stopped) == {}


def test_workers_are_unknown_when_not_listed() -> None:
    actual = run(observed(workers=[]))["connect.workers"]
    assert (actual.status, actual.seen) == (Status.UNKNOWN, "no worker is listed")


def test_transform_check_passes_for_another_template() -> None:
    desired = {"connector.class": PLUGIN, "exactly.once.support": "required"}
    live = replace(connector(desired), desired=desired)
    assert run(live)["connect.smt-version"].status is Status.PASS
