"""The deployed worked example, on a Connect worker and a database in memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.fake_connect import FakeConnect
from tests.unit.fake_postgres import FakePostgres
from tests.unit.operations.samples import CONFIRMED, NAME
from tests.unit.support import Script, ScriptedServer

from outbox_kit.connect import lifecycle as connect_lifecycle
from outbox_kit.connect.offset_seeding import seed
from outbox_kit.connect.state import EPOCH_KEY
from outbox_kit.deployment import Deployment
from outbox_kit.pipeline import Connect, ConnectorSettings, Lock
from outbox_kit.pipeline.environment import Registry


@pytest.fixture
def connect(database: FakePostgres) -> FakeConnect:
    """A worker on which the connector runs, with its offset at the slot's LSN."""
    offsets = [{"partition": {"server": "library"}, "offset": seed(CONFIRMED)}]
    fake = FakeConnect(configs={NAME: {EPOCH_KEY: "2"}}, states={NAME: "RUNNING"}, offsets={NAME: offsets})
    database.is_read = lambda: fake.states.get(NAME) == "RUNNING"
    return fake


@pytest.fixture
def server(serve: Callable[[Script], ScriptedServer], connect: FakeConnect) -> ScriptedServer:
    """HTTP server for that worker."""
    return serve(connect)


@pytest.fixture
def deployment(
    deployed: Callable[..., Deployment],
    server: ScriptedServer,
    serve: Callable[[Script], ScriptedServer],
    lock: Lock,
    monkeypatch: pytest.MonkeyPatch,
) -> Deployment:
    """Deployment with that connector, a registry that responds, and a lock file."""
    monkeypatch.setattr(connect_lifecycle, "POLL_INTERVAL_S", 0.01)
    registry = serve(lambda _: (200, {"compatibilityLevel": "FULL"}))
    target = deployed(
        connect=Connect(url=server.url),
        registry=Registry(url=registry.url),
        connector=ConnectorSettings(stability_seconds=0.5),
    )
    target.write_lock(lock)
    return target
