"""What the source database must have, what it has, and the difference."""

from __future__ import annotations

from dataclasses import dataclass

from outbox_kit.changes import Change
from outbox_kit.errors import RefusedError
from outbox_kit.pipeline import Environment, LockedSource, Pipeline, Source
from outbox_kit.postgres import client

FAILOVER_SLOTS_SINCE = 170000
COLUMN_TYPES = {
    "id": "uuid",
    "aggregate_type": "text",
    "aggregate_id": "text",
    "event_type": "text",
    "payload": "jsonb",
    "headers": "jsonb",
    "created_at": "timestamp with time zone",
}


@dataclass(frozen=True)
class ActualDatabase:
    """The source database as it is."""

    version: int
    database: str
    wal_level: str
    system_identifier: str
    columns: dict[str, str]
    publication: client.Row | None
    slot: client.Row | None
    role: client.Row | None


def read_actual(connection: client.Connection, pipeline: Pipeline, environment: Environment) -> ActualDatabase:
    """Look at everything that the pipeline needs of the database."""
    server = client.server(connection)
    source = pipeline.source
    return ActualDatabase(
        version=server["version"],
        database=server["database"],
        wal_level=server["wal_level"],
        system_identifier=server["system_identifier"],
        columns=client.table_columns(connection, source.table),
        publication=client.publication(connection, source.publication),
        slot=client.slot(connection, source.slot),
        role=client.grants(connection, environment.source.connector.user, source.table),
    )


def diff(pipeline: Pipeline, environment: Environment, actual: ActualDatabase) -> list[Change]:
    """Changes in the order in which they must be made: table, grants, publication, slot."""
    source = pipeline.source
    changes = []
    if not actual.columns:
        changes.append(Change("postgres", f"table {source.table}", "create", "services write their events here"))
    if not (actual.role and actual.role["can_read"]):
        role = environment.source.connector.user
        changes.append(Change("postgres", f"grant to {role}", "create", "the connector reads the outbox table"))
    if actual.publication is None:
        changes.append(Change("postgres", f"publication {source.publication}", "create", "inserts only"))
    if actual.slot is None:
        changes.append(Change("postgres", f"slot {source.slot}", "create", "from here on no row is missed"))
    return changes


def column_problems(source: Source, columns: dict[str, str]) -> list[str]:
    """Columns of the contract that the table lacks or has with another type, in words."""
    problems = []
    for role, name in source.columns.model_dump().items():
        if name not in columns:
            problems.append(f"{name} is missing")
        elif columns[name] != COLUMN_TYPES[role]:
            problems.append(f"{name} is {columns[name]}, not {COLUMN_TYPES[role]}")
    return problems


def refuse_unsafe(pipeline: Pipeline, actual: ActualDatabase, locked: LockedSource | None) -> None:
    """Stop where going on could lose rows. Raises RefusedError."""
    source = pipeline.source
    if actual.wal_level != "logical":
        raise RefusedError(
            f"wal_level is {actual.wal_level!r}, not 'logical'",
            "set wal_level = logical and restart PostgreSQL",
        )
    problems = column_problems(source, actual.columns) if actual.columns else []
    if problems:
        raise RefusedError(
            f"table {source.table} breaks the contract: {'; '.join(problems)}",
            "correct the table, or name its columns under source.columns; see docs/contract.md",
        )
    if actual.publication is not None:
        _refuse_wrong_publication(source, actual.publication)
    if actual.slot is not None:
        _refuse_wrong_slot(source, actual, actual.slot)
    if actual.slot is not None and actual.publication is None:
        raise RefusedError(
            f"slot {source.slot!r} exists but publication {source.publication!r} does not: made now, the publication "
            "would be younger than the slot, and rows in between would be lost",
            f"drop the slot (select pg_drop_replication_slot('{source.slot}')), apply again, republish what was missed",
        )
    if locked is not None:
        _refuse_lost_slot(source, actual, locked)


def _refuse_wrong_publication(source: Source, publication: client.Row) -> None:
    """A publication that leaves the rows out: the slot moves on, nothing arrives, nothing fails."""
    if source.table not in publication["tables"] or not publication["pubinsert"]:
        tables = ", ".join(publication["tables"]) or "no table"
        what = "inserts" if publication["pubinsert"] else "no inserts"
        raise RefusedError(
            f"publication {source.publication!r} publishes {what} of {tables}: rows of {source.table} do not pass",
            f"alter publication {source.publication} add table {source.table}, set (publish = 'insert'); "
            "rows written until then must be republished",
        )


def _refuse_wrong_slot(source: Source, actual: ActualDatabase, slot: client.Row) -> None:
    if slot["wal_status"] == "lost":
        raise RefusedError(
            f"slot {source.slot!r} is lost: the WAL that it needs was removed (max_slot_wal_keep_size)",
            "stop the connector, drop the slot, delete `source` from the lock file, apply, then republish",
        )
    if slot["plugin"] != "pgoutput" or slot["database"] != actual.database:
        raise RefusedError(
            f"slot {source.slot!r} is of plugin {slot['plugin']} in database {slot['database']!r}",
            "another connector may own it: choose another source.slot",
        )


def _refuse_lost_slot(source: Source, actual: ActualDatabase, locked: LockedSource) -> None:
    if locked.system_identifier != actual.system_identifier:
        raise RefusedError(
            f"the database is another one (system identifier {actual.system_identifier}, "
            f"the lock file has {locked.system_identifier})",
            "check source.host; after a restore or migration delete `source` from the lock file and raise source_epoch",
        )
    if locked.slot == source.slot and actual.slot is None:
        raise RefusedError(
            f"slot {source.slot!r} is gone; it was made at {locked.slot_lsn}: rows since its last position are lost "
            "to the connector",
            "stop the connector, delete `source` from the lock file, apply, then republish the aggregates concerned",
        )
