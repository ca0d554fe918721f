"""Responses of Connect and the registry for the deployed worked example."""

from __future__ import annotations

from collections.abc import Callable

from tests.unit.connect_samples import written
from tests.unit.fake_connect import FakeConnect
from tests.unit.support import Request, Script, ScriptedServer

from outbox_kit.deployment import Deployment
from outbox_kit.pipeline import HttpService, Lock

PLUGINS = [
    {"class": "io.debezium.connector.postgresql.PostgresConnector"},
    {"class": "io.debezium.converters.BinaryDataConverter"},
    {"class": "io.outboxkit.smt.OutboxRouter"},
    {"class": "org.apache.kafka.connect.json.JsonConverter"},
    {"class": "org.apache.kafka.connect.storage.StringConverter"},
]
NAME = "library-outbox"
CONFIRMED = 0x16B374D848
Serve = Callable[[Script], ScriptedServer]
Deployed = Callable[..., Deployment]


def stored(lsn: int) -> list[dict[str, object]]:
    """Offsets as Debezium commits them."""
    return [{"partition": {"server": "library"}, "offset": {"lsn": lsn, "messageType": "INSERT"}}]


def deployed_connector(config: dict[str, str], state: str = "RUNNING", lsn: int = CONFIRMED) -> FakeConnect:
    """A worker with the connector that outbox-kit deployed."""
    return FakeConnect(PLUGINS, {NAME: written(config)}, {NAME: state}, {NAME: stored(lsn)})


def service(server: ScriptedServer) -> HttpService:
    return HttpService(url=server.url)


def registered(lock: Lock, ids: dict[str, list[int]] | None = None) -> Script:
    """A registry with the schema versions of `lock`. `ids` replaces schema ids."""
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
