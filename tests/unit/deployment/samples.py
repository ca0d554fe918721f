"""What Connect and the registry answer about the worked example once it is deployed."""

from __future__ import annotations

from collections.abc import Callable

from tests.unit.postgres.samples import DEPLOYED
from tests.unit.support import Script, ScriptedServer

from outbox_kit.deployment import Deployment
from outbox_kit.pipeline import HttpService, Lock
from outbox_kit.postgres.state import ActualDatabase

PLUGINS = [
    {"class": "io.debezium.connector.postgresql.PostgresConnector"},
    {"class": "io.debezium.converters.BinaryDataConverter"},
    {"class": "io.outboxkit.smt.OutboxRouter"},
    {"class": "org.apache.kafka.connect.json.JsonConverter"},
    {"class": "org.apache.kafka.connect.storage.StringConverter"},
]
NO_CONNECTOR: tuple[int, object] = (404, {"error_code": 404, "message": "Connector library-outbox not found"})
STATUS = {"connector": {"state": "RUNNING"}, "tasks": [{"state": "RUNNING"}]}
STOPPED = {"connector": {"state": "STOPPED"}, "tasks": []}
CONFIRMED = 0x16B374D848
OFFSETS = {"offsets": [{"partition": {"server": "library"}, "offset": {"lsn": CONFIRMED}}]}
PASSED = {"offsets": [{"partition": {"server": "library"}, "offset": {"lsn": CONFIRMED - 1}}]}
AHEAD = {"offsets": [{"partition": {"server": "library"}, "offset": {"lsn": DEPLOYED.wal_position + 1}}]}
NO_OFFSET: dict[str, object] = {"offsets": []}
Serve = Callable[[Script], ScriptedServer]
Deployed = Callable[..., Deployment]
Given = Callable[[ActualDatabase], None]


def service(server: ScriptedServer) -> HttpService:
    return HttpService(url=server.url)


def registered(lock: Lock, ids: dict[str, list[int]] | None = None) -> Script:
    """A registry that has what `lock` has, under other ids where `ids` says so: answers to plan, then to the lock.

    The newest version is asked for once: Confluent's client keeps what cannot change.
    """
    script: list[tuple[int, object]] = []
    versions: list[tuple[int, object]] = []
    for name in ("author", "book", "outbox-canary"):
        entries = lock.schemas[name]
        bodies = [
            {
                "subject": entry.subject,
                "version": entry.version,
                "id": (ids or {}).get(name, [found.id for found in entries])[age],
                "schema": entry.text,
            }
            for age, entry in enumerate(entries)
        ]
        script += [(200, bodies[0]), (200, {"compatibilityLevel": "BACKWARD"})]
        versions += [(200, sorted(entry.version for entry in entries)), *((200, body) for body in bodies[1:])]
    return [*script, *versions]
