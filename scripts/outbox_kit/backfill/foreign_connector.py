"""Read a Debezium connector that outbox-kit did not create, and check whether `adopt` can replace it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from outbox_events.errors import RefusedError
from outbox_kit.connect import lifecycle as connect_lifecycle
from outbox_kit.connect.conflicts import DEBEZIUM_DEFAULTS
from outbox_kit.connect.offset_seeding import offset_of_prefix
from outbox_kit.deployment import Deployment
from outbox_kit.postgres.state import ActualDatabase

POSTGRES_CONNECTOR_CLASS = "io.debezium.connector.postgresql.PostgresConnector"


@dataclass(frozen=True)
class ForeignConnector:
    """Name and live config of a connector that outbox-kit did not create, and whether it is RUNNING."""

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
    """Read a connector. Raises RefusedError if it does not exist or is not a Debezium PostgreSQL connector."""
    config = deployment.connect.config(name)
    if config is None:
        hint = "correct the name; if `outbox adopt` has deleted the connector, run `outbox apply`"
        raise RefusedError(f"connector {name!r} does not exist", hint)
    if config.get("connector.class") != POSTGRES_CONNECTOR_CLASS:
        message = f"connector {name!r} has class {config.get('connector.class')}, not {POSTGRES_CONNECTOR_CLASS}"
        raise RefusedError(message, "give the name of a Debezium PostgreSQL connector")
    return ForeignConnector(name, config, connect_lifecycle.is_running(deployment.connect.status(name)))


def refuse_different_outbox(deployment: Deployment, old_connector: ForeignConnector, database: ActualDatabase) -> None:
    """Raise RefusedError if `old_connector` uses another slot or database, or if the publication is unsuitable."""
    source, publication = deployment.pipeline.source, database.publication or {}
    actual = {"slot.name": old_connector.slot, "database.dbname": old_connector.config.get("database.dbname")}
    expected = {"slot.name": source.slot, "database.dbname": deployment.environment.source.database}
    for name, key in (("slot.name", "source.slot"), ("database.dbname", "source.database")):
        if actual[name] != expected[name]:
            message = f"connector {old_connector.name!r} has {name} {actual[name]!r}, but {key} is {expected[name]!r}"
            raise RefusedError(message, f"set {key} to the value of this connector, or name another connector")
    if old_connector.is_running and not (database.slot and database.slot.active):
        raise RefusedError(
            f"connector {old_connector.name!r} is RUNNING, but slot {source.slot!r} of this database is not active",
            "set source.host in the environment file to the server that the connector reads (database.hostname)",
        )
    other_operations = [name for name in ("update", "delete", "truncate") if publication.get(f"pub{name}")]
    via_root = bool(publication.get("pubviaroot"))
    if other_operations or not via_root:
        raise RefusedError(
            f"publication {source.publication!r} publishes {', '.join(['insert', *other_operations])}, with "
            f"publish_via_partition_root = {str(via_root).lower()}",
            f"run `alter publication {source.publication} set (publish = 'insert', publish_via_partition_root = "
            f"true)`; connector {old_connector.name!r} also works with these options",
        )


def offset_of(deployment: Deployment, old_connector: ForeignConnector) -> dict[str, Any]:
    """Return the stopped connector's offset. Raises RefusedError if it is missing or the snapshot is incomplete."""
    prefix = old_connector.config.get("topic.prefix", "")
    offset = offset_of_prefix(deployment.connect.offsets(old_connector.name), prefix)
    if offset is None or not isinstance(offset.get("lsn"), int):
        message = f"connector {old_connector.name!r} has no offset with an LSN for topic.prefix {prefix!r}"
        hint = "if the connector has never sent a row, delete the connector and the slot, then run `outbox apply`"
        raise RefusedError(message, hint)
    if str(offset.get("snapshot", "false")).lower() not in ("false", "none"):
        raise RefusedError(
            f"connector {old_connector.name!r} was stopped before its initial snapshot was complete",
            "resume the connector, and run `outbox adopt` again when the snapshot is complete",
        )
    return offset
