"""Conditions under which a connector may resume."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.unit.connect.samples import NOBODY
from tests.unit.operations.samples import CONFIRMED, connector, positions
from tests.unit.postgres.samples import DEPLOYED
from tests.unit.support import Script, ScriptedServer

from outbox_kit.connect.state import ActualConnector
from outbox_kit.deployment import Deployment
from outbox_kit.errors import RefusedError
from outbox_kit.operations import resume_guard
from outbox_kit.pipeline import HttpService, Lock
from outbox_kit.postgres.state import ActualDatabase

Deployed = Callable[..., Deployment]
Serve = Callable[[Script], ScriptedServer]


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Set the state that is read from the database."""

    def given(actual: ActualDatabase = DEPLOYED, confirmed: int = CONFIRMED) -> None:
        monkeypatch.setattr(Deployment, "read_database", lambda _: actual)
        at = positions(CONFIRMED, confirmed, server=2**40)
        monkeypatch.setattr(resume_guard, "read_positions", lambda *_: at)

    return given


def test_accepts_a_connector_that_matches_the_lock_file(
    deployed: Deployed, lock: Lock, database: Callable[..., None]
) -> None:
    deployment = deployed()
    deployment.write_lock(lock)
    database()
    resume_guard.refuse_unsafe_start(deployment, connector())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"slot": None}, "slot 'library_outbox'"),
        ({"system_identifier": "7302"}, "system identifier of the database is 7302"),
        ({"timeline": 2}, "timeline of the server is 2"),
        ({"standby": True}, "is a standby"),
        ({"wal_position": 5}, "the server only at 5"),
    ],
)
def test_rejects_a_different_source(
    deployed: Deployed, lock: Lock, database: Callable[..., None], change: dict[str, object], message: str
) -> None:
    deployment = deployed()
    deployment.write_lock(lock)
    database(replace(DEPLOYED, **change))  # type: ignore[arg-type]
    with pytest.raises(RefusedError, match=message):
        resume_guard.refuse_unsafe_start(deployment, connector())


@pytest.mark.parametrize(
    ("actual", "update", "confirmed", "message"),
    [
        (connector(position=None), {}, CONFIRMED, "has no offset"),
        (connector(), {"unfinished": "recover"}, CONFIRMED, "was interrupted"),
        (connector(**{"transforms.outbox.source.epoch": "3"}), {}, CONFIRMED, "writes source epoch 3"),
        (connector(), {}, CONFIRMED + 1, "beyond the offset of connector"),
        (connector(), {"source": None}, CONFIRMED, "does not contain the slot"),
    ],
    ids=["no offset", "recovery", "epoch", "slot beyond", "no lock"],
)
def test_rejects_a_connector_that_would_lose_rows(
    deployed: Deployed,
    lock: Lock,
    database: Callable[..., None],
    actual: ActualConnector,
    update: dict[str, object],
    confirmed: int,
    message: str,
) -> None:
    deployment = deployed()
    deployment.write_lock(lock.model_copy(update=update))
    database(confirmed=confirmed)
    with pytest.raises(RefusedError, match=message) as refused:
        resume_guard.refuse_unsafe_start(deployment, actual)
    assert refused.value.hint


def test_requires_a_lock_file(deployed: Deployed) -> None:
    with pytest.raises(RefusedError, match=r"library\.fixed\.lock\.json does not contain the slot"):
        resume_guard.refuse_other_source(deployed())


def test_requires_a_connector(deployed: Deployed, serve: Serve) -> None:
    server = serve([NOBODY, (404, {"error_code": 404, "message": "Connector library-outbox not found"})])
    with pytest.raises(RefusedError, match="connector 'library-outbox' does not exist"):
        resume_guard.require_connector(deployed(connect=HttpService(url=server.url)))
