"""Connectors that can send the rows of the relay's table."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

import pytest
from tests.unit.connect_samples import PLUGIN, RUNNING, STOPPED

from outbox_events.errors import RefusedError, UnreachableError
from outbox_kit.connect.client import ConnectorStatus, LiveConnector
from outbox_kit.connect.config_diff import PIPELINE_KEY
from outbox_kit.deployment import Deployment
from outbox_kit.postgres import client
from outbox_kit.relay import preconditions
from outbox_kit.relay.preconditions import refuse_other_senders

TABLE, DATABASE = "public.outbox_event", "library"
CONFIG = {
    "connector.class": PLUGIN,
    "database.hostname": "db",
    "database.dbname": DATABASE,
    "table.include.list": TABLE,
    "topic.prefix": "library",
    PIPELINE_KEY: "library",
}
NO_KEY = {key: value for key, value in CONFIG.items() if key != PIPELINE_KEY}
PAUSED = ConnectorStatus("PAUSED", (), ())


@dataclass
class Connect:
    """A Connect cluster. `error` is raised by every request."""

    connectors: dict[str, LiveConnector] = field(default_factory=dict)
    error: Exception | None = None
    url: str = "http://connect:8083"

    def listed_connectors(self) -> dict[str, LiveConnector]:
        if self.error:
            raise self.error
        return self.connectors


def deployment(connect: Connect) -> Deployment:
    """Return a deployment of the pipeline `library`, whose connector is `library-outbox`."""
    source = SimpleNamespace(table=TABLE)
    connector = SimpleNamespace(name="library-outbox")
    pipeline = SimpleNamespace(name="library", prefix="library", source=source, connector=connector)
    database = SimpleNamespace(database=DATABASE, host="localhost", port=5432, connector_address=("db", 5432))
    environment = SimpleNamespace(source=database)
    return cast(Deployment, SimpleNamespace(pipeline=pipeline, environment=environment, connect=connect))


@pytest.fixture(autouse=True)
def slots(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of the slots of the server. Initially, all connectors of these tests read one of them."""
    names = {"debezium"}
    monkeypatch.setattr(client, "connected", lambda _source: nullcontext(names))
    monkeypatch.setattr(preconditions, "read_slot", lambda connection, name: name if name in connection else None)
    return names


def refusal(name: str, config: dict[str, str], status: ConnectorStatus | None) -> RefusedError | None:
    try:
        refuse_other_senders(deployment(Connect({name: LiveConnector(config, status)})))
    except RefusedError as error:
        return error
    return None


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("library-outbox", CONFIG),
        ("library-outbox", {**CONFIG, "table.include.list": "outbox_kit.no_table"}),
        ("renamed", CONFIG),
        ("of-no-pipeline", NO_KEY),
        ("of-no-pipeline", {**NO_KEY, "topic.prefix": "other", "database.hostname": "10.0.0.7"}),
        ("of-no-pipeline", {**NO_KEY, "table.include.list": "public.book, PUBLIC[.]outbox_.*"}),
    ],
)
def test_own_connectors_and_those_of_no_pipeline_must_be_stopped(name: str, config: dict[str, str]) -> None:
    for status in (RUNNING, PAUSED, None):
        assert name in str(refusal(name, config, status))
    assert refusal(name, config, STOPPED) is None


@pytest.mark.parametrize(
    "changes",
    [
        {PIPELINE_KEY: "other"},
        {PIPELINE_KEY: "other", "topic.prefix": "other", "database.hostname": "10.0.0.7"},
        {"topic.prefix": "other"},  # the pipeline in another environment, or with --set prefix=
    ],
)
@pytest.mark.parametrize("name", ["other-outbox", "library-outbox"])
def test_a_connector_of_another_pipeline_is_refused_even_if_it_is_stopped(name: str, changes: dict[str, str]) -> None:
    config = {**CONFIG, **changes}
    for status in (RUNNING, STOPPED):
        error = refusal(name, config, status)
        assert error is not None
        assert f"connector {name!r} of pipeline {config[PIPELINE_KEY]!r}" in error.message


@pytest.mark.parametrize(
    "changes",
    [
        {"table.include.list": "public.outbox_event_2,library.outbox_event"},
        {"table.include.list": ""},
        {"database.dbname": "other"},
        {"connector.class": "io.debezium.connector.mysql.MySqlConnector"},
    ],
)
def test_connectors_that_do_not_read_the_table_can_run(changes: dict[str, str]) -> None:
    assert (
        refusal("other-outbox", {**CONFIG, PIPELINE_KEY: "other", "topic.prefix": "other", **changes}, RUNNING) is None
    )


def test_a_connector_that_reads_another_server_can_run(slots: set[str]) -> None:
    config = {**CONFIG, PIPELINE_KEY: "other", "topic.prefix": "other"}
    elsewhere = {"database.hostname": "10.0.0.7"}
    assert refusal("other-outbox", config | elsewhere, RUNNING) is not None
    slots.clear()
    assert refusal("other-outbox", config | elsewhere, RUNNING) is None
    assert refusal("other-outbox", config | {"database.port": "5433"}, RUNNING) is None
    assert refusal("other-outbox", config, RUNNING) is not None
    assert refusal("library-outbox", CONFIG | elsewhere, RUNNING) is not None


def test_starts_without_connectors() -> None:
    refuse_other_senders(deployment(Connect()))


def test_names_the_option_for_a_pipeline_without_connect() -> None:
    with pytest.raises(UnreachableError) as error:
        refuse_other_senders(deployment(Connect(error=UnreachableError("no response", "x"))))
    assert "--no-connect" in error.value.hint
