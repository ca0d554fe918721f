"""Status of a pipeline: its problems, and systems that do not respond."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from pydantic import SecretStr
from tests.unit.operations.samples import FAILED, RUNNING, STOPPED, connector
from tests.unit.postgres.samples import SLOT as DEPLOYED_SLOT

from outbox_kit.connect.config_diff import FINGERPRINT_KEY
from outbox_kit.connect.state import ActualConnector
from outbox_kit.deployment import Deployment
from outbox_kit.errors import OutboxKitError, UnreachableError
from outbox_kit.operations import status
from outbox_kit.pipeline import Connect, Lock, Login

Deployed = Callable[..., Deployment]
SLOT = replace(DEPLOYED_SLOT, confirmed_flush=1000, restart=900)
SERVER = 5000


@pytest.fixture
def seen(deployed: Deployed, lock: Lock, monkeypatch: pytest.MonkeyPatch) -> Callable[..., status.PipelineStatus]:
    """Read the status with these responses of the systems; an error is raised."""

    def respond(value: object) -> Callable[..., Any]:
        def give(*_: object) -> object:
            if isinstance(value, OutboxKitError):
                raise value
            return value

        return give

    def read(
        actual: object = None, slot: object = (SLOT, SERVER), letters: object = 0, locked: bool = True
    ) -> status.PipelineStatus:
        deployment = deployed()
        if locked:
            deployment.write_lock(lock)
        monkeypatch.setattr(status.connect_state, "read_actual", respond(actual or connector()))
        monkeypatch.setattr(status, "_slot", respond(slot))
        monkeypatch.setattr(status.dead_letters, "count", respond(letters))
        return status.read_status(deployment)

    return read


def test_reports_a_running_pipeline(seen: Callable[..., status.PipelineStatus]) -> None:
    actual = seen()
    assert actual.problems == []
    assert (actual.state, actual.worker, actual.tasks) == ("RUNNING", "w:1", [status.Task("RUNNING", "w:2")])
    assert (actual.lag, actual.retained) == (4000, 4100)
    document = actual.to_dict()
    assert document["running"] is True
    assert document["connector"]["tasks"] == [{"id": 0, "state": "RUNNING", "worker": "w:2"}]
    assert document["positions"]["slot"] == {"number": 1000, "text": "0/3E8"}
    assert document["source_epoch"] == {"lock": 2, "connector": 2}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"actual": connector(STOPPED)}, "connector library-outbox is STOPPED, tasks: none"),
        ({"actual": connector(FAILED)}, "connector library-outbox is RUNNING, tasks: FAILED"),
        ({"actual": connector(None)}, "connector library-outbox does not exist, or has no status yet"),
        ({"actual": ActualConnector(None, None, [])}, "connector library-outbox does not exist, or has no status yet"),
        (
            {"actual": connector(**{"transforms.outbox.source.epoch": "1"})},
            "the connector writes source epoch 1, the lock file has 2",
        ),
        ({"slot": (None, SERVER)}, "slot library_outbox does not exist"),
        ({"slot": (replace(SLOT, active=False), SERVER)}, "slot library_outbox is not active"),
        ({"slot": (replace(SLOT, wal_status="lost"), SERVER)}, "the WAL of slot library_outbox is lost"),
        ({"slot": (replace(SLOT, wal_status="unreserved"), SERVER)}, "the WAL of slot library_outbox is unreserved"),
    ],
)
def test_reports_problems(seen: Callable[..., status.PipelineStatus], given: dict[str, object], problem: str) -> None:
    actual = seen(**given)
    assert problem in actual.problems
    assert actual.to_dict()["running"] is False


def test_a_worker_that_does_not_respond_is_a_note(
    deployed: Deployed, seen: Callable[..., status.PipelineStatus], free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = [f"http://127.0.0.1:{free_port}", f"http://localhost:{free_port}"]
    actual = deployed(connect=Connect(url=addresses[0], workers=[addresses[1]]))
    monkeypatch.setattr(status.connect_state, "read_actual", lambda *_: connector())
    notes = status.read_status(actual).to_dict()["notes"]
    assert notes == [f"cannot reach Kafka Connect at {address}: connection refused" for address in addresses]
    assert seen().notes == []
    monkeypatch.setattr(status, "_slot", lambda *_: (replace(SLOT, active=False), SERVER))
    assert status.read_status(actual).notes == [*notes, status.REBALANCE_NOTE]


@pytest.mark.parametrize("system", ["actual", "slot", "letters"])
def test_a_system_that_does_not_respond_hides_no_other(seen: Callable[..., status.PipelineStatus], system: str) -> None:
    actual = seen(**{system: UnreachableError("cannot reach it")})
    assert actual.problems == ["cannot reach it"]
    assert (actual.state is None) == (system == "actual")
    assert (actual.lag is None) == (system == "slot")
    assert (actual.dead_letters is None) == (system == "letters")


def test_a_failure_shows_its_root_cause(seen: Callable[..., status.PipelineStatus]) -> None:
    assert seen(connector(FAILED)).cause == "y.PSQLException: ERROR: why"
    assert seen(connector(RUNNING)).cause == ""


def test_dead_letters_and_a_missing_lock_file_do_not_fail(
    seen: Callable[..., status.PipelineStatus],
) -> None:
    actual = seen(letters=3, locked=False)
    assert (actual.dead_letters, actual.locked_epoch, actual.problems) == (3, None, [])


def test_fingerprint_equals_the_one_of_apply(seen: Callable[..., status.PipelineStatus]) -> None:
    assert seen(connector(**{FINGERPRINT_KEY: "0123456789abcdef"})).fingerprint == "0123456789ab"


@pytest.mark.parametrize("verifier", [None, "watcher"])
def test_uses_the_login_with_fewer_privileges(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch, verifier: str | None
) -> None:
    login = Login(user=verifier, password=SecretStr("x")) if verifier else None
    source = deployed().environment.source.model_copy(update={"verifier": login})
    requests: list[object] = []

    @contextmanager
    def connected(*given: object) -> Iterator[None]:
        requests.extend(given)
        yield None

    monkeypatch.setattr(status.postgres_client, "connected", connected)
    monkeypatch.setattr(status, "read_slot", lambda *_: SLOT)
    monkeypatch.setattr(status.postgres_client, "read_server", lambda _: {"wal_position": SERVER})
    monkeypatch.setattr(status.connect_state, "read_actual", lambda *_: connector())
    monkeypatch.setattr(status.dead_letters, "count", lambda *_: 0)
    assert status.read_status(deployed(source=source)).confirmed == 1000
    assert requests == [source, login]
