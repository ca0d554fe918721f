"""Comparison of the rendered connector with the live connector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.connect_samples import COMMITTED, DESIRED, MOVED, NULL, PLUGIN, ROUTER, RUNNING, SEEDED, STOPPED
from tests.unit.support import Script, ScriptedServer

from outbox_kit.connect.client import ConnectClient, ConnectorStatus
from outbox_kit.connect.offset_seeding import seed
from outbox_kit.connect.state import (
    ActualConnector,
    State,
    diff,
    missing_plugins,
    read_actual,
)
from outbox_kit.pipeline import HttpService
from outbox_kit.results.changes import Change

Serve = Callable[[Script], ScriptedServer]
PAUSED = ConnectorStatus("PAUSED", ("PAUSED",), ())
FAILED = ConnectorStatus("FAILED", (), ())
STATUS = {"connector": {"state": "RUNNING"}, "tasks": [{"state": "RUNNING"}]}


@pytest.mark.parametrize(
    ("status", "offsets", "expected"),
    [
        (STOPPED, [], True),
        (STOPPED, SEEDED, True),
        # an earlier LSN of the slot, which advances while the connector is stopped
        (STOPPED, [{"partition": {"server": "library"}, "offset": seed(0x16B374D848)}], True),
        (STOPPED, NULL, True),
        (STOPPED, MOVED, False),
        (STOPPED, COMMITTED, False),
        (STOPPED, [{"partition": {}, "offset": {"lsn": 5}}], False),
        (STOPPED, [{"partition": {}, "offset": {}}], False),
        (STOPPED, [{"partition": {}, "offset": {"lsn": 5, "lsn_proc": 5, "other": 5}}], False),
        (STOPPED, [*SEEDED, *MOVED], False),
        (STOPPED, [*SEEDED, *COMMITTED], False),
        (RUNNING, [], False),
        (RUNNING, SEEDED, False),
        (ConnectorStatus("PAUSED", ("PAUSED",), ()), [], False),
        (ConnectorStatus("PAUSED", ("PAUSED",), ()), SEEDED, False),
        (ConnectorStatus("FAILED", (), ()), SEEDED, False),
        (ConnectorStatus("UNASSIGNED", (), ()), [], False),
        (None, [], False),
        (None, SEEDED, False),
    ],
)
def test_starts_a_connector_that_never_ran(
    status: ConnectorStatus | None, offsets: list[dict[str, Any]], expected: bool
) -> None:
    changes = diff("c", {}, ActualConnector({}, status, offsets))
    assert ("start" in [change.kind for change in changes]) is expected


def test_diff_creates_missing_objects() -> None:
    assert diff("c", DESIRED, ActualConnector(None, None, [])) == [
        Change("connect", "connector", "c", "create", "reads the slot and writes to the topics")
    ]


@pytest.mark.parametrize(
    ("config", "status", "offsets", "expected"),
    [
        (DESIRED, RUNNING, MOVED, []),
        ({**DESIRED, "name": "c"}, RUNNING, MOVED, []),
        (DESIRED, STOPPED, MOVED, [("state c", "update", "RUNNING")]),
        (
            {**DESIRED, "max.batch.size": "1"},
            RUNNING,
            MOVED,
            [("connector c", "update", "max.batch.size: 1 → (absent)")],
        ),
        (DESIRED, STOPPED, [], [("start c", "create", "")]),
        (DESIRED, STOPPED, SEEDED, [("start c", "create", "")]),
        (DESIRED, STOPPED, COMMITTED, [("state c", "update", "RUNNING")]),
        (
            {**DESIRED, "a": "1"},
            ConnectorStatus("PAUSED", ("PAUSED",), ()),
            SEEDED,
            [("connector c", "update", "a: 1 → (absent)"), ("state c", "update", "RUNNING")],
        ),
        (
            {**DESIRED, "a": "1", "b": "2"},
            STOPPED,
            SEEDED,
            [("connector c", "update", "a: 1 → (absent); b: 2 → (absent)"), ("start c", "create", "")],
        ),
        (DESIRED, None, [], []),
    ],
    ids=[
        "same",
        "with the worker's own key",
        "stopped later",
        "changed",
        "interrupted",
        "interrupted after the seed",
        "stopped after some events",
        "paused, changed",
        "interrupted and changed",
        "no status yet",
    ],
)
def test_diff(
    config: dict[str, str],
    status: ConnectorStatus | None,
    offsets: list[dict[str, Any]],
    expected: list[tuple[str, str, str]],
) -> None:
    changes = diff("c", DESIRED, ActualConnector(config, status, offsets))
    assert [(change.object, change.action, change.after) for change in changes] == expected


@pytest.mark.parametrize(
    ("state", "status", "offsets", "planned"),
    [
        ("running", RUNNING, MOVED, []),
        ("running", FAILED, MOVED, []),
        ("running", ConnectorStatus("UNASSIGNED", (), ()), MOVED, []),
        ("running", PAUSED, MOVED, [("state c", "PAUSED", "RUNNING")]),
        ("running", STOPPED, MOVED, [("state c", "STOPPED", "RUNNING")]),
        ("running", STOPPED, SEEDED, [("start c", "", "")]),
        ("paused", RUNNING, MOVED, [("state c", "RUNNING", "PAUSED")]),
        ("paused", PAUSED, MOVED, []),
        ("paused", STOPPED, MOVED, [("state c", "STOPPED", "PAUSED")]),
        ("paused", STOPPED, [], [("start c", "", "left PAUSED")]),
        ("stopped", RUNNING, MOVED, [("state c", "RUNNING", "STOPPED")]),
        ("stopped", PAUSED, MOVED, [("state c", "PAUSED", "STOPPED")]),
        ("stopped", FAILED, MOVED, [("state c", "FAILED", "STOPPED")]),
        ("stopped", STOPPED, MOVED, []),
        ("stopped", STOPPED, SEEDED, []),
        # An apply crashed before seeding, so resuming later would lose rows.
        ("stopped", STOPPED, [], [("start c", "", "left STOPPED")]),
        ("stopped", None, MOVED, []),
    ],
)
def test_applies_the_declared_state(
    state: State, status: ConnectorStatus | None, offsets: list[dict[str, Any]], planned: list[tuple[str, str, str]]
) -> None:
    changes = diff("c", DESIRED, ActualConnector(DESIRED, status, offsets), state=state)
    assert [(change.object, change.before, change.after) for change in changes] == planned
    assert all(change.reason for change in changes)


def test_creation_in_another_state_is_described() -> None:
    changes = diff("c", DESIRED, ActualConnector(None, None, []), state="stopped")
    assert [(change.object, change.action, change.after) for change in changes] == [
        ("connector c", "create", "left STOPPED")
    ]


# --- read_actual


@pytest.mark.parametrize("count", [0, 1, 200])
def test_number_of_calls_is_independent_of_cluster_size(serve: Serve, count: int) -> None:
    body = {f"c{number}": {"info": {"config": {"a": "1"}}, "status": STATUS} for number in range(count)}
    server = serve([(200, {**body, "c": {"info": {"config": DESIRED}, "status": STATUS}}), (200, {"offsets": MOVED})])
    actual = read_actual(ConnectClient(HttpService(url=server.url)), "c")
    assert [request.path for request in server.seen] == [
        "/connectors?expand=info&expand=status",
        "/connectors/c/offsets",
    ]
    assert (actual.config, actual.offsets) == (DESIRED, MOVED)
    assert actual.status is not None
    assert actual.status.text == RUNNING.text
    assert len(actual.other_connectors) == count


def test_connector_without_a_status_exists(serve: Serve) -> None:
    """The list of connectors omits it shortly after its creation. Creating it again would be rejected."""
    server = serve([(200, {}), (200, DESIRED), (200, {"offsets": []})])
    actual = read_actual(ConnectClient(HttpService(url=server.url)), "c")
    assert actual == ActualConnector(DESIRED, None, [], {})


def test_reports_a_missing_connector(serve: Serve) -> None:
    server = serve([(200, {}), (404, {"error_code": 404, "message": "Connector c not found"})])
    assert read_actual(ConnectClient(HttpService(url=server.url)), "c") == ActualConnector(None, None, [], {})


@pytest.mark.parametrize(
    ("installed", "missing"),
    [
        ([PLUGIN, ROUTER, "other"], []),
        ([PLUGIN], [ROUTER]),
        ([], [PLUGIN, ROUTER]),
    ],
)
def test_reports_missing_plugins(installed: list[str], missing: list[str]) -> None:
    assert missing_plugins(DESIRED, installed) == missing


def test_requires_every_transform_of_a_chain() -> None:
    chain = {"connector.class": PLUGIN, "transforms.a.type": "A", "transforms.b.type": "B$Value"}
    assert missing_plugins({**chain, "transforms.a.type.name": "x"}, [PLUGIN]) == ["A", "B$Value"]


@pytest.mark.parametrize(
    ("key", "named"),
    [
        ("connector.class", True),
        ("key.converter", True),
        ("value.converter", True),
        ("header.converter", True),
        ("transforms.a-b.type", True),
        ("value.converter.delegate.converter.type", True),
        ("value.converter.delegate.converter.type.schemas.enable", False),
        ("predicates.is-heartbeat.type", True),
        ("value.converter.schemas.enable", False),
        ("internal.key.converter", False),
        ("transforms.outbox.source.type", False),
        ("transforms", False),
        ("database.type", False),
    ],
)
def test_detects_keys_that_name_a_class(key: str, named: bool) -> None:
    """Without this check, a missing converter would fail the task after the connector was created."""
    assert missing_plugins({key: "x.Y"}, ["other"]) == (["x.Y"] if named else [])
    assert missing_plugins({key: "x.Y"}, ["x.Y"]) == []


def test_reports_a_missing_class_once() -> None:
    config = {"key.converter": "S", "header.converter": "S", "value.converter": "B"}
    assert missing_plugins(config, []) == ["B", "S"]


@pytest.mark.parametrize(
    ("status", "unfinished", "planned"),
    [
        (STOPPED, None, ["state c"]),
        (STOPPED, "update", ["start c"]),
        (RUNNING, "update", []),
        (STOPPED, "recover", ["offsets c", "start c"]),
        (RUNNING, "recover", ["offsets c", "start c"]),
    ],
)
def test_completes_an_interrupted_apply(status: ConnectorStatus, unfinished: str | None, planned: list[str]) -> None:
    """A connector that an operator stopped remains stopped. One that an apply stopped is started."""
    own = [{"partition": {"server": "library"}, "offset": {"lsn": 9, "txId": 1}}]
    changes = diff("c", DESIRED, ActualConnector(DESIRED, status, own), unfinished)
    assert [change.object for change in changes] == planned
