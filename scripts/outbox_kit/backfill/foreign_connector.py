"""A Debezium connector that outbox-kit did not create, and the conditions under which `adopt` replaces it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from outbox_kit.connect import lifecycle as connect_lifecycle
from outbox_kit.connect.conflicts import DEBEZIUM_DEFAULTS
from outbox_kit.deployment import Deployment
from outbox_kit.errors import RefusedError
from outbox_kit.postgres.state import ActualDatabase

POSTGRES_CONNECTOR = "io.debezium.connector.postgresql.PostgresConnector"
MIGRATION_HINT = "see docs/migrating.md"


@dataclass(frozen=True)
class ForeignConnector:
    """Name and live config of the connector, and whether it is RUNNING."""

    name: str
    config: dict[str, str]
    is_running: bool

    @property
    def slot(self) -> str:
        return self.config.get("slot.name", DEBEZIUM_DEFAULTS["slot.name"])

    @property
    def publication(self) -> str:
        return self.config.get("publication.name", DEBEZIUM_DEFAULTS["publication.name"])


def read_foreign(deployment: Deployment, name: str) -> ForeignConnector:
    """Read the connector. Raises RefusedError if it does not exist or has another class."""
    config = deployment.connect.config(name)
    if config is None:
        raise RefusedError(f"connector {name!r} does not exist", "if adopt has replaced it, run `outbox apply`")
    connector_class = config.get("connector.class")
    if connector_class != POSTGRES_CONNECTOR:
        raise RefusedError(f"connector {name!r} has class {connector_class}, not {POSTGRES_CONNECTOR}", MIGRATION_HINT)
    return ForeignConnector(name, config, connect_lifecycle.is_running(deployment.connect.status(name)))


def refuse_different_outbox(deployment: Deployment, old: ForeignConnector, database: ActualDatabase) -> None:
    """Raise RefusedError unless `old` reads the pipeline's slot and the publication has the options of outbox-kit."""
    source = deployment.pipeline.source
    actual = {"slot.name": old.slot, "database.dbname": old.config.get("database.dbname")}
    expected = {"slot.name": source.slot, "database.dbname": deployment.environment.source.database}
    for key, value in expected.items():
        if actual[key] != value:
            message = f"connector {old.name!r} has {key} {actual[key]!r}, but the files have {value!r}"
            raise RefusedError(message, f"use the value of the old connector in the files; {MIGRATION_HINT}")
    if old.is_running and not (database.slot and database.slot.active):
        raise RefusedError(
            f"connector {old.name!r} is RUNNING, but slot {source.slot!r} of this database is not active",
            "the connector reads another server: check source.host",
        )
    publication = database.publication or {}
    operations = [name for name in ("update", "delete", "truncate") if publication.get(f"pub{name}")]
    via_root = bool(publication.get("pubviaroot"))
    if operations or not via_root:
        raise RefusedError(
            f"publication {source.publication!r} publishes {', '.join(['insert', *operations])}, with "
            f"publish_via_partition_root = {str(via_root).lower()}",
            f"run `alter publication {source.publication} set (publish = 'insert', publish_via_partition_root = "
            "true)`; the old connector also works with these options",
        )


def offset_of(deployment: Deployment, old: ForeignConnector) -> dict[str, Any]:
    """Return the offset of the stopped connector. Raises RefusedError."""
    partition = {"server": old.config.get("topic.prefix", "")}
    entries = deployment.connect.offsets(old.name)
    offsets = [entry["offset"] for entry in entries if entry["partition"] == partition and entry["offset"]]
    if not offsets or not isinstance(offsets[0].get("lsn"), int):
        message = f"connector {old.name!r} has no offset"
        raise RefusedError(message, "it has never sent a row: delete connector and slot, then run `outbox apply`")
    offset: dict[str, Any] = offsets[0]
    if str(offset.get("snapshot", "false")).lower() not in ("false", "none"):
        raise RefusedError(
            f"connector {old.name!r} was stopped during its initial snapshot",
            "resume the connector, and run `outbox adopt` again when the snapshot is complete",
        )
    return offset
