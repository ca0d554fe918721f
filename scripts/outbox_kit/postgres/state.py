"""What the source database must have, what it has, and the difference."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from outbox_kit.changes import Change
from outbox_kit.errors import RECOVER, RefusedError
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


# By the type that `apply` gives the payload column: those that do as well.
PAYLOAD_TYPES = {"jsonb": ("jsonb",), "text": ("text", "json", "jsonb"), "bytea": ("bytea",)}
# As format_type writes them, with a length.
VARCHAR = re.compile(r"character varying(\(\d+\))?")
VERSION_TYPES = re.compile(rf"text|{VARCHAR.pattern}|smallint|integer|bigint")
# What Debezium hands over as neither text nor whole number is no header, and what it counts from an epoch says nothing
# as one. With a time zone it is text.
NO_HEADER_TYPES = re.compile(
    r"(numeric|real|double precision|money|bytea|bit|point|date|interval)\b.*"
    r"|time(stamp)?(\(\d\))? without time zone|.*\[\]"
)


@dataclass(frozen=True)
class ActualDatabase:
    """The source database as it is."""

    version: int
    database: str
    wal_level: str
    system_identifier: str
    timeline: int
    standby: bool
    wal_position: int
    columns: dict[str, str]
    publication: client.Row | None
    slot: client.Row | None
    role: client.Row | None


def read_actual(connection: client.Connection, pipeline: Pipeline, environment: Environment) -> ActualDatabase:
    """Look at everything that the pipeline needs of the database. Raises RejectedError where its identity is hidden."""
    return look_at(connection, pipeline, environment, client.system_identifier(connection))


def look_at(
    connection: client.Connection, pipeline: Pipeline, environment: Environment, system_identifier: str
) -> ActualDatabase:
    """As read_actual(), of a database whose identity was asked before; empty where it is hidden."""
    server = client.server(connection)
    source = pipeline.source
    return ActualDatabase(
        version=server["version"],
        database=server["database"],
        wal_level=server["wal_level"],
        system_identifier=system_identifier,
        timeline=client.standby_timeline(connection) if server["standby"] else server["timeline"],
        standby=server["standby"],
        wal_position=server["wal_position"],
        columns=client.table_columns(connection, source.table),
        publication=client.publication(connection, source.publication),
        slot=client.slot(connection, source.slot),
        role=client.grants(connection, environment.source.connector.user, source.table),
    )


def diff(pipeline: Pipeline, environment: Environment, actual: ActualDatabase) -> list[Change]:
    """Changes in the order in which they must be made: table, grants, publication, slot."""
    source = pipeline.source
    changes = []
    if not actual.columns and source.uses_table:
        changes.append(Change("postgres", f"table {source.table}", "create", "services write their events here"))
    if not (actual.role and actual.role["can_read"]) and source.uses_table:
        role = environment.source.connector.user
        changes.append(Change("postgres", f"grant to {role}", "create", "the connector reads the outbox table"))
    if actual.publication is None:
        changes.append(Change("postgres", f"publication {source.publication}", "create", _published(source)))
    if actual.slot is None:
        changes.append(Change("postgres", f"slot {source.slot}", "create", "from here on no row is missed"))
    return changes


def _published(source: Source) -> str:
    return "inserts only" if source.uses_table else "no table: messages pass any publication"


def column_problems(pipeline: Pipeline, columns: dict[str, str]) -> list[str]:
    """Columns of the contract that the table lacks or has with another type, in words."""
    problems = []
    for role, name in pipeline.source.columns.model_dump().items():
        if name not in columns:
            problems.append(f"{name} is missing")
        elif _base(columns[name]) not in (types := _types(pipeline, role)):
            problems.append(f"{name} is {columns[name]}, not {' or '.join(types)}")
    for kind, aggregate in pipeline.aggregates.items():
        field = aggregate.partition_field
        if field and field not in columns:
            problems.append(f"{field}, the partition_field of {kind}, is missing")
    return [*problems, *_further_problems(pipeline.source, columns)]


def _base(column_type: str) -> str:
    """Text, for text with or without a length: Debezium and the transform see no difference."""
    return "text" if VARCHAR.fullmatch(column_type) else column_type


def _types(pipeline: Pipeline, role: str) -> tuple[str, ...]:
    """Types that a column of the contract may have."""
    return PAYLOAD_TYPES[pipeline.payload_type] if role == "payload" else (COLUMN_TYPES[role],)


def _further_problems(source: Source, columns: dict[str, str]) -> Iterator[str]:
    """The same of columns that the pipeline file names beyond the contract's."""
    version = source.schema_version_column
    if version and version not in columns:
        yield f"{version}, the schema_version_column, is missing"
    elif version and VERSION_TYPES.fullmatch(columns[version]) is None:
        yield f"{version}, the schema_version_column, is {columns[version]}, not text or an integer type"
    for name in source.header_columns:
        if name not in columns:
            yield f"{name}, one of the header_columns, is missing"
        elif NO_HEADER_TYPES.fullmatch(columns[name]):
            yield f"{name}, one of the header_columns, is {columns[name]}, which is not passed on as text"


def refuse_unsafe(pipeline: Pipeline, actual: ActualDatabase, locked: LockedSource | None) -> None:
    """Stop where going on could lose rows. `locked` is None before the first apply and when recovering.

    Raises RefusedError.
    """
    source = pipeline.source
    if actual.standby:
        raise RefusedError("the database is a standby", "name the primary in source.host")
    if actual.wal_level != "logical":
        raise RefusedError(
            f"wal_level is {actual.wal_level!r}, not 'logical'",
            "set wal_level = logical and restart PostgreSQL",
        )
    has_table = actual.columns and source.uses_table
    problems = column_problems(pipeline, actual.columns) if has_table else []
    if problems:
        raise RefusedError(
            f"table {source.table} breaks the contract: {'; '.join(problems)}",
            "add or alter the columns as docs/contract.md has them, or name the table's own under source.columns",
        )
    if locked is not None:
        _refuse_other_source(source, actual, locked)
    if actual.publication is not None and source.uses_table:
        _refuse_wrong_publication(source, actual.publication)
    if actual.slot is not None:
        _refuse_wrong_slot(source, actual, actual.slot)


def _refuse_wrong_publication(source: Source, publication: client.Row) -> None:
    """A publication that leaves rows out: the slot moves on, nothing arrives, nothing fails."""
    name = source.publication
    if source.table not in publication["tables"] or not publication["pubinsert"]:
        tables = ", ".join(publication["tables"]) or "no table"
        what = "inserts" if publication["pubinsert"] else "no inserts"
        raise RefusedError(
            f"publication {name!r} publishes {what} of {tables}: rows of {source.table} do not pass",
            f"alter publication {name} add table {source.table}, set (publish = 'insert'); "
            "rows written until then must be republished",
        )
    if publication["filtered"]:
        raise RefusedError(
            f"publication {name!r} has a row filter: rows that it leaves out are lost in silence",
            f"alter publication {name} set table {source.table}; rows left out until then must be republished",
        )


def _refuse_wrong_slot(source: Source, actual: ActualDatabase, slot: client.Row) -> None:
    drop = f"select pg_drop_replication_slot('{source.slot}')"
    if slot["wal_status"] == "lost":
        raise RefusedError(
            f"slot {source.slot!r} is lost: the WAL that it needs was removed (max_slot_wal_keep_size)",
            f"stop the connector, {drop}, then {RECOVER}",
        )
    if slot["plugin"] != "pgoutput" or slot["database"] != actual.database:
        raise RefusedError(
            f"slot {source.slot!r} is of plugin {slot['plugin']} in database {slot['database']!r}",
            "another connector may own it: choose another source.slot",
        )
    if actual.publication is None:
        raise RefusedError(
            f"slot {source.slot!r} exists but publication {source.publication!r} does not: made now, the publication "
            "would be younger than the slot, and rows in between would be lost",
            f"stop the connector, {drop}, then {RECOVER}",
        )


def _refuse_other_source(source: Source, actual: ActualDatabase, locked: LockedSource) -> None:
    """Database, slot and publication must be those of the lock file."""
    if locked.system_identifier != actual.system_identifier:
        raise RefusedError(
            f"the database is another one (system identifier {actual.system_identifier}, "
            f"the lock file has {locked.system_identifier})",
            f"check source.host; after a restore or migration: {RECOVER}",
        )
    if locked.timeline != actual.timeline:
        raise RefusedError(
            f"the server was promoted or restored since (timeline {actual.timeline}, the lock file has "
            f"{locked.timeline}): positions may have gone back",
            RECOVER,
        )
    if locked.slot != source.slot:
        raise RefusedError(
            f"source.slot is {source.slot!r}, the lock file has {locked.slot!r}: the connector's position belongs "
            "to the old slot",
            f"set it back; or, to move on purpose: {RECOVER}",
        )
    if actual.slot is None:
        raise RefusedError(
            f"slot {source.slot!r} is gone; it was made at {locked.slot_lsn}: rows since its last position are lost "
            "to the connector",
            RECOVER,
        )
    if actual.publication is not None and actual.publication["oid"] != locked.publication_oid:
        raise RefusedError(
            f"publication {source.publication!r} was made anew after the slot: rows in between are lost",
            f"stop the connector, select pg_drop_replication_slot('{source.slot}'), then {RECOVER}",
        )
