"""A Debezium connector that the kit did not make: what it reads, where it stands, and why it may not be taken over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from outbox_kit.connect import lifecycle as connect_lifecycle
from outbox_kit.deployment import Deployment
from outbox_kit.errors import RefusedError
from outbox_kit.postgres.state import ActualDatabase

POSTGRES_CONNECTOR = "io.debezium.connector.postgresql.PostgresConnector"
# Debezium's own defaults.
SLOT, PUBLICATION = "debezium", "dbz_publication"
SEE = "see docs/migrating.md"


@dataclass(frozen=True)
class OldConnector:
    """The connector as Connect has it."""

    name: str
    config: dict[str, str]
    runs: bool

    @property
    def slot(self) -> str:
        return self.config.get("slot.name", SLOT)

    @property
    def publication(self) -> str:
        return self.config.get("publication.name", PUBLICATION)

    @property
    def prefix(self) -> str:
        return self.config.get("topic.prefix", "")


def read_old(deployment: Deployment, name: str) -> OldConnector:
    """Look at it. Raises RefusedError when it is not there, or of another kind."""
    config = deployment.connect.config(name)
    if config is None:
        raise RefusedError(f"there is no connector {name!r}", "if it was taken over already: `outbox apply`")
    kind = config.get("connector.class")
    if kind != POSTGRES_CONNECTOR:
        raise RefusedError(f"connector {name!r} is a {kind}, not Debezium's for PostgreSQL", SEE)
    return OldConnector(name, config, connect_lifecycle.is_running(deployment.connect.status(name)))


def refuse_other_outbox(deployment: Deployment, old: OldConnector, database: ActualDatabase) -> None:
    """It must read the slot that the pipeline file names, and the publication must let only inserts through."""
    source = deployment.pipeline.source
    found = {"slot.name": old.slot, "database.dbname": old.config.get("database.dbname")}
    wanted = {"slot.name": source.slot, "database.dbname": deployment.environment.source.database}
    for key, value in wanted.items():
        if found[key] != value:
            message = f"connector {old.name!r} has {key} {found[key]!r}, the pipeline {value!r}"
            raise RefusedError(message, f"name the old connector's in the pipeline file; {SEE}")
    if old.runs and not (database.slot and database.slot["active"]):
        raise RefusedError(
            f"connector {old.name!r} runs, but nobody reads slot {source.slot!r} of this database",
            "it reads another server: check source.host",
        )
    publication = database.publication or {}
    more = [name for name in ("update", "delete", "truncate") if publication.get(f"pub{name}")]
    if more or not publication.get("pubviaroot"):
        raise RefusedError(
            f"publication {source.publication!r} publishes {', '.join(['insert', *more])}, "
            f"{'' if publication.get('pubviaroot') else 'not '}via the partition root",
            f"alter publication {source.publication} set (publish = 'insert', publish_via_partition_root = true); "
            "the old connector does not mind",
        )


def offset_of(deployment: Deployment, old: OldConnector) -> dict[str, Any]:
    """Where the stopped connector stands, as Debezium wrote it. Raises RefusedError."""
    partition = {"server": old.prefix}
    entries = deployment.connect.offsets(old.name)
    found = [entry["offset"] for entry in entries if entry["partition"] == partition and entry["offset"]]
    if not found or not isinstance(found[0].get("lsn"), int):
        message = f"connector {old.name!r} has no position in the log"
        raise RefusedError(message, "it has never sent a row: delete it, and its slot, then `outbox apply`")
    offset: dict[str, Any] = found[0]
    if str(offset.get("snapshot", "false")).lower() not in ("false", "none"):
        raise RefusedError(
            f"connector {old.name!r} was stopped in the middle of its initial snapshot",
            "resume it, and run this again when it streams",
        )
    return offset
