"""The connector as rendered against the connector as Connect has it."""

from __future__ import annotations

from typing import Any

import pytest

from outbox_kit.changes import Change
from outbox_kit.checking import Status
from outbox_kit.connect import checks
from outbox_kit.connect.client import ConnectorStatus
from outbox_kit.connect.state import (
    ActualConnector,
    diff,
    different_keys,
    missing_plugins,
    never_ran,
    seed_offset,
)
from outbox_kit.pipeline import UNKNOWN

PLUGIN = "io.debezium.connector.postgresql.PostgresConnector"
ROUTER = "io.outboxkit.smt.OutboxRouter"
DESIRED = {"connector.class": PLUGIN, "transforms.outbox.type": ROUTER, "database.password": "${env:X}"}
SEED = {"lsn": 5, "lsn_proc": 5, "lsn_commit": 5}
SEEDED = [{"partition": {"server": "library"}, "offset": SEED}]
MOVED = [{"partition": {"server": "library"}, "offset": {**SEED, "lsn": 9}}]
RUNNING = ConnectorStatus("RUNNING", ("RUNNING",), ())
STOPPED = ConnectorStatus("STOPPED", (), ())


@pytest.mark.parametrize(
    ("desired", "actual", "different"),
    [
        ({}, {}, []),
        ({"a": "1"}, {"a": "1"}, []),
        ({"a": "1"}, {"a": "2"}, ["a"]),
        ({"a": "1"}, {}, ["a"]),
        ({}, {"a": "1"}, ["a"]),
        ({"b": "1", "a": "1"}, {"c": "1"}, ["a", "b", "c"]),
        # the worker adds the name
        ({"a": "1"}, {"a": "1", "name": "library-outbox"}, []),
        ({"a": "1", "name": "x"}, {"a": "1", "name": "y"}, []),
        # what some distributions answer instead of a password
        ({"database.password": "${env:X}"}, {"database.password": "****"}, []),
        ({"database.password": "${env:X}"}, {"database.password": "••••••••"}, []),
        ({"database.password": "${env:X}"}, {"database.password": "[hidden]"}, []),
        ({"database.password": "${env:X}"}, {"database.password": "*"}, []),
        ({}, {"database.password": "****"}, ["database.password"]),
        ({"a": "${env:X}"}, {"a": "** not a mask"}, ["a"]),
        ({"a": "1"}, {"a": ""}, ["a"]),
        # what is not known before apply
        ({"id": UNKNOWN}, {"id": "12"}, []),
        ({"id": UNKNOWN}, {}, []),
        ({"id": "13"}, {"id": "12"}, ["id"]),
    ],
)
def test_different_keys(desired: dict[str, str], actual: dict[str, str], different: list[str]) -> None:
    assert different_keys(desired, actual) == different


@pytest.mark.parametrize(
    ("status", "offsets", "seed", "expected"),
    [
        (STOPPED, [], SEED, True),
        (STOPPED, SEEDED, SEED, True),
        (STOPPED, [], None, True),
        (STOPPED, MOVED, SEED, False),
        (STOPPED, SEEDED, None, False),
        (STOPPED, [*SEEDED, *MOVED], SEED, False),
        (RUNNING, [], SEED, False),
        (RUNNING, SEEDED, SEED, False),
        (ConnectorStatus("PAUSED", ("PAUSED",), ()), SEEDED, SEED, False),
        (None, [], SEED, False),
    ],
)
def test_never_ran(
    status: ConnectorStatus | None,
    offsets: list[dict[str, Any]],
    seed: dict[str, int] | None,
    expected: bool,
) -> None:
    assert never_ran(ActualConnector({}, status, offsets), seed) is expected


@pytest.mark.parametrize(
    ("text", "lsn"),
    [
        ("0/0", 0),
        ("0/1", 1),
        ("1/0", 2**32),
        ("16/B374D848", 0x16B374D848),
        ("FFFFFFFF/FFFFFFFF", 2**64 - 1),
        ("0/16b3748", 0x16B3748),
    ],
)
def test_seed_offset(text: str, lsn: int) -> None:
    assert seed_offset(text) == {"lsn": lsn, "lsn_proc": lsn, "lsn_commit": lsn}


def test_diff_creates_what_is_not_there() -> None:
    assert diff("c", DESIRED, ActualConnector(None, None, []), seed=None) == [
        Change("connect", "connector c", "create", "reads the slot, writes the topics")
    ]


@pytest.mark.parametrize(
    ("config", "status", "offsets", "expected"),
    [
        (DESIRED, RUNNING, MOVED, []),
        ({**DESIRED, "name": "c"}, STOPPED, MOVED, []),
        (
            {**DESIRED, "max.batch.size": "1"},
            RUNNING,
            MOVED,
            [("connector c", "update", "changed: max.batch.size")],
        ),
        (DESIRED, STOPPED, [], [("start c", "create", "")]),
        (
            {**DESIRED, "a": "1", "b": "2"},
            STOPPED,
            SEEDED,
            [("connector c", "update", "changed: a, b"), ("start c", "create", "")],
        ),
        (DESIRED, None, [], []),
    ],
    ids=["same", "stopped later", "changed", "interrupted", "interrupted and changed", "no status yet"],
)
def test_diff(
    config: dict[str, str],
    status: ConnectorStatus | None,
    offsets: list[dict[str, Any]],
    expected: list[tuple[str, str, str]],
) -> None:
    changes = diff("c", DESIRED, ActualConnector(config, status, offsets), seed=SEED)
    assert [(change.object, change.action, change.after) for change in changes] == expected


def test_changes_name_keys_never_values() -> None:
    actual = ActualConnector({**DESIRED, "database.password": "hunter2"}, RUNNING, MOVED)
    changes = diff("c", {**DESIRED, "database.password": "s3cret"}, actual, seed=SEED)
    assert "database.password" in changes[0].after
    assert "hunter2" not in repr(changes)
    assert "s3cret" not in repr(changes)


@pytest.mark.parametrize(
    ("installed", "missing"),
    [
        ([PLUGIN, ROUTER, "other"], []),
        ([PLUGIN], [ROUTER]),
        ([], [PLUGIN, ROUTER]),
    ],
)
def test_missing_plugins(installed: list[str], missing: list[str]) -> None:
    assert missing_plugins(DESIRED, installed) == missing


def test_every_transform_of_a_chain_must_be_installed() -> None:
    chain = {"connector.class": PLUGIN, "transforms.a.type": "A", "transforms.b.type": "B$Value"}
    assert missing_plugins({**chain, "transforms.a.type.name": "x"}, [PLUGIN]) == ["A", "B$Value"]


# --- what verify says


def seen(actual: ActualConnector, plugins: list[str]) -> dict[str, str]:
    found = checks.run("c", DESIRED, actual, plugins=plugins)
    assert [check.id for check in found] == [
        "connect.plugins",
        "connect.running",
        "connect.config",
        "connect.offsets",
    ]
    assert all(bool(check.remedy) is (check.status is Status.FAIL) for check in found)
    return {check.id: check.seen for check in found if check.status is Status.FAIL}


FAILED = ConnectorStatus(
    "RUNNING",
    ("FAILED",),
    ("org.apache.kafka.ConnectException: outer\n\tat x\nCaused by: java.X: inner\n\tat y",),
)
NO_TASK = ConnectorStatus("RUNNING", (), ())


@pytest.mark.parametrize(
    ("actual", "plugins", "expected"),
    [
        (ActualConnector(DESIRED, RUNNING, MOVED), [PLUGIN, ROUTER], {}),
        (ActualConnector(DESIRED, RUNNING, MOVED), [PLUGIN], {"connect.plugins": f"missing: {ROUTER}"}),
        (
            ActualConnector(DESIRED, FAILED, MOVED),
            [PLUGIN, ROUTER],
            {"connect.running": "connector RUNNING, tasks: FAILED; java.X: inner"},
        ),
        (
            ActualConnector(DESIRED, NO_TASK, MOVED),
            [PLUGIN, ROUTER],
            {"connect.running": "connector RUNNING, tasks: no task yet"},
        ),
        (
            ActualConnector({**DESIRED, "a": "1"}, RUNNING, MOVED),
            [PLUGIN, ROUTER],
            {"connect.config": "differs in a"},
        ),
        (ActualConnector(DESIRED, RUNNING, []), [PLUGIN, ROUTER], {"connect.offsets": "no offset"}),
        (
            ActualConnector(DESIRED, RUNNING, [{"partition": {}, "offset": {"other": 1}}]),
            [PLUGIN, ROUTER],
            {"connect.offsets": "lsn None"},
        ),
        (
            ActualConnector(None, None, []),
            [PLUGIN, ROUTER],
            {
                "connect.running": "no connector c",
                "connect.config": "differs in no connector c",
                "connect.offsets": "no offset",
            },
        ),
    ],
)
def test_checks(actual: ActualConnector, plugins: list[str], expected: dict[str, str]) -> None:
    assert seen(actual, plugins) == expected
