"""Responses of Connect and the registry for the deployed worked example."""

from __future__ import annotations

from collections.abc import Callable

from tests.unit.postgres.samples import DEPLOYED
from tests.unit.support import Request, Script, ScriptedServer

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
    """A registry with the versions of `lock`, with other ids where `ids` has some."""
    subjects = {
        entries[0].subject: {
            entry.version: {
                "subject": entry.subject,
                "version": entry.version,
                "id": (ids or {}).get(name, [actual.id for actual in entries])[age],
                "schema": entry.text,
            }
            for age, entry in enumerate(entries)
        }
        for name, entries in lock.schemas.items()
    }

    def answer(request: Request) -> tuple[int, object]:
        if request.path.startswith("/config/"):
            return 200, {"compatibilityLevel": "BACKWARD"}
        _, _, subject, _, *version = request.path.split("?")[0].split("/")
        versions = subjects[subject]
        if not version:
            return 200, sorted(versions)
        return 200, versions[max(versions) if version[0] == "latest" else int(version[0])]

    return answer
