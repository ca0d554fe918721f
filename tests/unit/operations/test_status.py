"""Status of a pipeline: its problems, and systems that do not respond."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic import SecretStr
from tests.unit.fake_connect import FakeConnect, Fault
from tests.unit.fake_kafka import FakeKafka
from tests.unit.fake_postgres import FakePostgres
from tests.unit.operations.samples import NAME
from tests.unit.postgres.samples import DEPLOYED
from tests.unit.postgres.samples import SLOT as DEPLOYED_SLOT
from tests.unit.support import ScriptedServer

from outbox_events.errors import UnreachableError
from outbox_kit.connect.client import ConnectClient
from outbox_kit.connect.config_diff import FINGERPRINT_KEY
from outbox_kit.connect.offset_seeding import seed
from outbox_kit.connect.state import EPOCH_KEY
from outbox_kit.dead_letters.dead_letter_topic import DeadLetterTopic
from outbox_kit.deployment import Deployment
from outbox_kit.operations import status
from outbox_kit.operations.status import read_status
from outbox_kit.pipeline import Connect, Login
from outbox_kit.postgres.replication_slot import Slot
from outbox_kit.registry.client import RegistryClient

SLOT = replace(DEPLOYED_SLOT, confirmed_flush=1000, restart_lsn=900)


@pytest.fixture(autouse=True)
def positions_at_1000(connect: FakeConnect, database: FakePostgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the LSNs of the connector and slot (1000) and of the server (5000), without dead letters."""
    connect.offsets[NAME] = [{"partition": {"server": "library"}, "offset": seed(1000)}]
    database.actual = replace(DEPLOYED, slot=SLOT, wal_position=5000)
    monkeypatch.setattr(DeadLetterTopic, "count", lambda *_: 0)
    monkeypatch.setattr(status.time, "time", lambda: 10_000.0)
    monkeypatch.setattr(Deployment, "kafka", kafka := FakeKafka({}))
    kafka.times = {"library.author": 4_000.0, "library.book": 9_000.0, "__debezium-heartbeat.library": 9_995.0}


def test_reports_a_running_pipeline(deployment: Deployment) -> None:
    actual = read_status(deployment)
    assert actual.problems == []
    assert (actual.state, actual.worker, actual.tasks) == ("RUNNING", "w:1", [status.Task("RUNNING", "w:2")])
    assert (actual.lag, actual.retained) == (4000, 4100)
    document = actual.to_dict()
    assert document["running"] is True
    assert document["connector"]["tasks"] == [{"id": 0, "state": "RUNNING", "worker": "w:2"}]
    assert document["positions"]["slot"] == {"number": 1000, "text": "0/3E8"}
    assert document["source_epoch"] == {"lock": 2, "connector": 2}
    assert (document["pipeline"], document["environment"]) == ("library", "fixed")
    assert document["database"] == "db.example.internal:5433/library"
    assert document["ages_s"] == {"record": 1000, "heartbeat": 5}
    assert document["next_steps"] == []


@pytest.mark.parametrize(("megabytes", "limit"), [(-1, None), (0, 0), (64, 64 << 20)])
def test_reports_the_limit_of_the_retained_wal(
    deployment: Deployment, database: FakePostgres, megabytes: int, limit: int | None
) -> None:
    database.retention_mb = megabytes
    assert read_status(deployment).to_dict()["slot"]["retention_limit_bytes"] == limit


def test_a_late_heartbeat_is_a_note(deployment: Deployment) -> None:
    deployment.kafka.times["__debezium-heartbeat.library"] = 9_900.0  # type: ignore[attr-defined]
    actual = read_status(deployment)
    assert actual.problems == []
    assert ["100 s old" in note for note in actual.notes] == [True]


MISSING = "connector library-outbox does not exist, or has no status yet"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"states": {NAME: "STOPPED"}}, "connector library-outbox is STOPPED, tasks: none"),
        ({"failed": {NAME}}, "connector library-outbox is RUNNING, tasks: FAILED"),
        ({"configs": {}}, MISSING),
        # Connect does not list a connector that has no status yet.
        ({"faults": {"GET connectors": [Fault((200, {}))]}}, MISSING),
        ({"configs": {NAME: {EPOCH_KEY: "1"}}}, "the connector writes source epoch 1, but the lock file has 2"),
    ],
)
def test_reports_problems_of_the_connector(
    deployment: Deployment, connect: FakeConnect, change: dict[str, Any], problem: str
) -> None:
    vars(connect).update(change)
    actual = read_status(deployment)
    assert problem in actual.problems
    assert actual.to_dict()["running"] is False


@pytest.mark.parametrize(
    ("slot", "problem"),
    [
        (None, "slot library_outbox does not exist"),
        (replace(SLOT, active=False), "slot library_outbox is not active"),
        (replace(SLOT, wal_status="lost"), "the WAL of slot library_outbox is lost"),
        (replace(SLOT, wal_status="unreserved"), "the WAL of slot library_outbox is unreserved"),
    ],
)
def test_reports_problems_of_the_slot(
    deployment: Deployment, database: FakePostgres, slot: Slot | None, problem: str
) -> None:
    database.actual = replace(database.actual, slot=slot)
    actual = read_status(deployment)
    assert actual.problems == [problem]
    assert actual.to_dict()["running"] is False


@pytest.mark.parametrize(("wal_position", "count"), [(999, 1), (1000, 0)])
def test_reports_an_offset_that_the_server_has_not_reached(
    deployment: Deployment, database: FakePostgres, wal_position: int, count: int
) -> None:
    """After a restore, PostgreSQL would skip the rows up to the offset."""
    database.actual = replace(database.actual, wal_position=wal_position)
    assert len(read_status(deployment).problems) == count


def test_a_worker_that_does_not_respond_is_a_note(
    deployment: Deployment, server: ScriptedServer, database: FakePostgres, free_port: int
) -> None:
    service = Connect(url=server.url, workers=[f"http://127.0.0.1:{free_port}"])
    environment = deployment.environment.model_copy(update={"connect": service})
    target = replace(deployment, environment=environment, connect=ConnectClient(service, service.addresses))
    notes = [f"cannot reach Kafka Connect at {service.workers[0]}: connection refused"]
    assert read_status(target).to_dict()["notes"] == notes
    assert read_status(deployment).notes == []
    database.is_read = lambda: False
    assert read_status(target).notes == [*notes, status.REBALANCE_NOTE]


def test_a_missing_publication_is_a_problem(deployment: Deployment, database: FakePostgres) -> None:
    database.actual = replace(database.actual, publication=None)
    actual = read_status(deployment)
    assert actual.problems == ["publication library_outbox does not exist"]
    assert actual.next_steps == ["run `outbox recover`"]
    assert actual.to_dict()["publication"]["exists"] is False


def test_a_frozen_broker_does_not_hide_the_state_of_the_connector(
    deployment: Deployment, connect: FakeConnect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker knows the states, but reads the offsets from Kafka."""

    def fails(*_: object) -> int:
        raise UnreachableError("cannot reach Kafka", "check the brokers")

    monkeypatch.setattr(DeadLetterTopic, "count", fails)
    connect.faults = {"GET offsets": [Fault((500, {"message": "Request timed out"}))]}
    actual = read_status(deployment)
    assert (actual.state, actual.worker, actual.offset_was_read, actual.ages) == ("RUNNING", "w:1", False, {})
    assert len(actual.problems) == 2
    assert actual.problems[0] == "cannot reach Kafka"
    assert "Request timed out" in actual.problems[1]
    assert actual.next_steps == ["check the brokers"]


@pytest.mark.parametrize(
    ("changes", "steps"),
    [
        ({"connect": {"failed": {NAME}}}, ["fix the root cause, then run `outbox restart --failed`"]),
        ({"connect": {"states": {NAME: "STOPPED"}}}, ["run `outbox resume`"]),
        ({"connect": {"states": {NAME: "PAUSED"}}}, ["run `outbox resume`"]),
        ({"connect": {"configs": {}}}, ["run `outbox apply`"]),
        ({"connect": {"failed": {NAME}}, "slot": None}, ["run `outbox recover`"]),
        ({"slot": replace(SLOT, wal_status="lost")}, ["run `outbox recover`"]),
        ({"slot": replace(SLOT, wal_status="unreserved")}, ["run `outbox verify`"]),
        ({"slot": replace(SLOT, active=False)}, ["run `outbox verify`"]),
        ({"letters": 3}, ["run `outbox dead-letter list`"]),
        ({"slot": None, "lock": None}, ["run `outbox apply`"]),
    ],
)
def test_names_the_next_step(
    deployment: Deployment,
    connect: FakeConnect,
    database: FakePostgres,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    steps: list[str],
) -> None:
    vars(connect).update(changes.get("connect", {}))
    database.actual = replace(database.actual, slot=changes.get("slot", SLOT))
    monkeypatch.setattr(DeadLetterTopic, "count", lambda *_: changes.get("letters", 0))
    if "lock" in changes:
        deployment.lock_file.unlink()
    assert read_status(deployment).next_steps == steps


def test_does_not_suggest_a_connector_for_a_pipeline_that_has_only_a_relay(
    deployment: Deployment, connect: FakeConnect, database: FakePostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect.configs = {}
    database.actual = replace(database.actual, slot=None)
    monkeypatch.setattr(DeadLetterTopic, "count", lambda *_: 0)
    lock = deployment.lock()
    assert lock is not None
    deployment.write_lock(lock.model_copy(update={"source": None, "config": None, "names": {}}))
    [step] = read_status(deployment).next_steps
    assert "only a relay" in step
    assert "outbox apply" not in step


@pytest.mark.parametrize("system", ["connect", "database", "kafka", "registry"])
def test_an_unreachable_system_does_not_hide_the_other_systems(
    deployment: Deployment,
    connect: FakeConnect,
    database: FakePostgres,
    monkeypatch: pytest.MonkeyPatch,
    system: str,
) -> None:
    def fails(*_: object) -> int:
        raise UnreachableError("cannot reach it")

    if system == "connect":
        connect.faults = {"GET connectors": [Fault((503, None))]}
    elif system == "database":
        database.down = True
    elif system == "registry":
        monkeypatch.setattr(RegistryClient, "compatibility", fails)
    else:
        monkeypatch.setattr(DeadLetterTopic, "count", fails)
    actual = read_status(deployment)
    assert len(actual.problems) == 1
    assert (actual.state is None) == (system == "connect")
    assert (actual.lag is None) == (system == "database")
    assert (actual.dead_letters is None) == (system == "kafka")
    assert actual.registry_responded == (system != "registry")


def test_a_failure_shows_its_root_cause(deployment: Deployment, connect: FakeConnect) -> None:
    assert read_status(deployment).cause == ""
    connect.failed = {NAME}
    assert read_status(deployment).cause == "org.postgresql.util.PSQLException: ERROR: publication does not exist"


def test_dead_letters_and_a_missing_lock_file_do_not_fail(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DeadLetterTopic, "count", lambda *_: 3)
    deployment.lock_file.unlink()
    actual = read_status(deployment)
    assert (actual.dead_letters, actual.lock_file_epoch, actual.problems) == (3, None, [])


def test_fingerprint_equals_the_one_of_apply(deployment: Deployment, connect: FakeConnect) -> None:
    connect.configs[NAME] = {FINGERPRINT_KEY: "0123456789abcdef"}
    assert read_status(deployment).fingerprint == "0123456789ab"


@pytest.mark.parametrize(("verifier", "user"), [(None, "owner"), ("watcher", "watcher")])
def test_uses_the_login_with_fewer_privileges(
    deployment: Deployment, database: FakePostgres, verifier: str | None, user: str
) -> None:
    login = Login(user=verifier, password=SecretStr("x")) if verifier else None
    source = deployment.environment.source.model_copy(update={"verifier": login})
    environment = deployment.environment.model_copy(update={"source": source})
    assert read_status(replace(deployment, environment=environment)).confirmed == 1000
    assert database.users == [user]
