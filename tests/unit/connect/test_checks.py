"""What `outbox verify` says of a connector."""

from __future__ import annotations

import pytest
from tests.unit.connect.samples import DESIRED, MOVED, PLUGIN, ROUTER, RUNNING

from outbox_kit.checking import Status
from outbox_kit.connect import checks
from outbox_kit.connect.client import ConnectorStatus
from outbox_kit.connect.state import (
    ActualConnector,
)


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
