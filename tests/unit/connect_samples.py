"""A connector in various states."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from tests.unit.support import Script, ScriptedServer

from outbox_kit.connect.client import ConnectClient, ConnectorStatus
from outbox_kit.connect.config_diff import with_fingerprint
from outbox_kit.pipeline import HttpService
from outbox_kit.results.changes import Change

Serve = Callable[[Script], ScriptedServer]

PLUGIN = "io.debezium.connector.postgresql.PostgresConnector"
ROUTER = "io.outboxkit.smt.OutboxRouter"
DESIRED = {"connector.class": PLUGIN, "transforms.outbox.type": ROUTER, "database.password": "${env:X}"}
SEED = {"lsn": 5, "lsn_proc": 5, "lsn_commit": 5}
SEEDED = [{"partition": {"server": "library"}, "offset": SEED}]
MOVED = [{"partition": {"server": "library"}, "offset": {**SEED, "lsn": 9}}]
# An offset as Debezium 3 commits it, with the keys of a seed and additional keys.
COMMITTED = [{"partition": {"server": "library"}, "offset": {**SEED, "txId": 7, "ts_usec": 1, "messageType": "INSERT"}}]
NULL = [{"partition": {"server": "library"}, "offset": None}]
RUNNING = ConnectorStatus("RUNNING", ("RUNNING",), ())
STOPPED = ConnectorStatus("STOPPED", (), ())
TRACE = (
    "org.apache.kafka.connect.errors.ConnectException: An exception occurred\n"
    "\tat io.debezium.Runner.run(Runner.java:1)\n"
    "Caused by: io.debezium.DebeziumException: in between\n"
    "\t... 3 more\n"
    "Caused by: org.postgresql.util.PSQLException: ERROR: publication does not exist\n"
    "\tat org.postgresql.Core.x(Core.java:2)\n"
)
CREATE = Change("connect", "connector", "c", "create", "")
UPDATE = Change("connect", "connector", "c", "update", "")
START = Change("connect", "start", "c", "create", "")
STATE = Change("connect", "state", "c", "update", "")
POLL_S = 0.01


def ticking() -> Callable[[], float]:
    """Clock that advances by POLL_S with every poll, regardless of the machine's load."""
    ticks = itertools.count()
    return lambda: next(ticks) * POLL_S


def client(server: ScriptedServer) -> ConnectClient:
    return ConnectClient(HttpService(url=server.url))


def writes(server: ScriptedServer) -> list[str]:
    return [f"{request.method} {request.path}" for request in server.seen if request.method != "GET"]


def stored(offset: dict[str, Any], prefix: str = "p") -> list[dict[str, Any]]:
    """Offsets of a connector in Connect's format."""
    return [{"partition": {"server": prefix}, "offset": offset}]


def written(config: dict[str, str]) -> dict[str, str]:
    """A config as outbox-kit writes it."""
    return with_fingerprint("library", config)
