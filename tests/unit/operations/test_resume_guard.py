"""What must hold before a connector may read again."""

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
    """Give what is read of the database."""

    def given(actual: ActualDatabase = DEPLOYED, confirmed: int = CONFIRMED) -> None:
        monkeypatch.setattr(resume_guard, "read_database", lambda _: actual)
        at = positions(CONFIRMED, confirmed, server=2**40)
        monkeypatch.setattr(resume_guard, "read_positions", lambda *_: at)

    return given


def test_what_is_as_recorded_may_start(deployed: Deployed, lock: Lock, database: Callable[..., None]) -> None:
    deployment = deployed()
    deployment.write_lock(lock)
    database()
    resume_guard.refuse_unsafe_start(deployment, connector())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"slot": None}, "slot 'library_outbox' is gone"),
        ({"system_identifier": "7302"}, "the database is another one"),
        ({"timeline": 2}, "was promoted or restored since"),
        ({"standby": True}, "is a standby"),
        ({"wal_position": 5}, "the server only at 5"),
    ],
)
def test_another_source_is_refused(
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
        (connector(position=None), {}, CONFIRMED, "has no position: started now, it would begin at the server's"),
        (connector(), {"unfinished": "recover"}, CONFIRMED, "was interrupted"),
        (connector(**{"transforms.outbox.source.epoch": "3"}), {}, CONFIRMED, "writes source epoch 3"),
        (connector(), {}, CONFIRMED + 1, "it was made anew, advanced, or is read by somebody else"),
        (connector(), {"source": None}, CONFIRMED, "does not know the slot"),
    ],
    ids=["no position", "recovery", "epoch", "slot beyond", "no lock"],
)
def test_a_connector_that_would_lose_rows_is_refused(
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


def test_without_a_lock_file_nothing_can_be_told(deployed: Deployed) -> None:
    with pytest.raises(RefusedError, match=r"library\.fixed\.lock\.json does not know the slot"):
        resume_guard.refuse_other_source(deployed())


def test_there_must_be_a_connector(deployed: Deployed, serve: Serve) -> None:
    server = serve([NOBODY, (404, {"error_code": 404, "message": "Connector library-outbox not found"})])
    with pytest.raises(RefusedError, match="there is no connector 'library-outbox'"):
        resume_guard.require_connector(deployed(connect=HttpService(url=server.url)))
