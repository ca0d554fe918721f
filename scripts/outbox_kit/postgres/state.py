"""Compare the desired with the actual state of the source database, and return the changes that are needed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from outbox_events.errors import RefusedError
from outbox_kit.pipeline import Environment, LockedSource, Pipeline, Source
from outbox_kit.postgres import client, ddl
from outbox_kit.postgres.replication_slot import Slot, read_slot
from outbox_kit.results.changes import Change
from outbox_kit.results.repair_commands import APPLY_RECOVER_HINT, NEW_DATABASE_HINT, RECOVER_HINT, RESEND_HINT

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
# Maps the type with which `apply` creates the payload column to the types that an existing column can have.
PAYLOAD_TYPES = {"jsonb": ("jsonb",), "text": ("text", "json", "jsonb"), "bytea": ("bytea",)}
# These patterns match type names as format_type() returns them. The name of a varchar type can include a length.
VARCHAR = re.compile(r"character varying(\(\d+\))?")
SCHEMA_VERSION_TYPES = re.compile(rf"text|{VARCHAR.pattern}|smallint|integer|bigint")
# Types that a header column cannot have. Debezium emits their values as epoch numbers, or as neither text nor integers.
UNSUPPORTED_HEADER_TYPES = re.compile(
    r"(numeric|real|double precision|money|bytea|bit|point|date|interval)\b.*"
    r"|time(stamp)?(\(\d\))? without time zone|.*\[\]"
)


@dataclass(frozen=True)
class ActualDatabase:
    """Actual state of the source database. `system_identifier` is empty if the login lacks the privilege to read it.

    `table_oid` is None if the outbox table does not exist, or if events are logical decoding messages.
    """

    version: int
    database: str
    wal_level: str
    system_identifier: str
    timeline: int
    is_standby: bool
    wal_position: int
    columns: dict[str, str]
    publication: client.Row | None
    slot: Slot | None
    role: client.Row | None
    table_oid: int | None = None
    relay: client.Relay = client.NO_RELAY

    @property
    def retained_bytes(self) -> int | None:
        """Bytes of WAL that the server retains for the slot; None if the slot does not exist or is lost."""
        if self.slot is None or self.slot.restart_lsn is None:
            return None
        return 0 if self.is_standby else self.wal_position - self.slot.restart_lsn


def read_actual(
    connection: client.Connection, pipeline: Pipeline, environment: Environment, *, system_identifier: str | None = None
) -> ActualDatabase:
    """Return the state of the server and the pipeline's objects. If `system_identifier` is passed, it is not read.

    Raises RejectedError if the login lacks the privilege to read the system identifier or the timeline of a standby.
    """
    if system_identifier is None:
        system_identifier = client.read_system_identifier(connection)
    source, slot = pipeline.source, read_slot(connection, pipeline.source.slot)
    server = client.read_server(connection)
    if server["is_standby"]:
        server["timeline"] = client.read_standby_timeline(connection)
    return ActualDatabase(
        **server,
        system_identifier=system_identifier,
        columns=client.read_column_types(connection, source.table),
        publication=client.read_publication(connection, source.publication),
        slot=slot,
        role=client.read_role(connection, environment.source.connector.user, source.table),
        table_oid=client.read_table_oid(connection, source.table) if source.uses_table else None,
        relay=client.read_relay(connection, source.table),
    )


def has_new_table(actual: ActualDatabase, locked_source: LockedSource | None) -> bool:
    """Return whether the outbox table was dropped and created again since the lock file was written."""
    recorded_oid = locked_source.table_oid if locked_source else None
    return None not in (actual.table_oid, recorded_oid) and actual.table_oid != recorded_oid


def diff(
    pipeline: Pipeline, environment: Environment, actual: ActualDatabase, locked_source: LockedSource | None = None
) -> list[Change]:
    """Return the changes that lead to the desired state, in order of execution: table, grants, publication, slot."""
    source = pipeline.source
    changes = []
    if source.uses_table and not actual.columns:
        changes.append(Change("postgres", "table", source.table, "create", "services write their events to the table"))
    elif locked_source is not None and has_new_table(actual, locked_source):
        reason = "the table was dropped and created again outside outbox-kit"
        oids = f"oid {locked_source.table_oid} (lock file)", f"oid {actual.table_oid}"
        changes.append(Change("postgres", "table", source.table, "update", reason, *oids))
    if source.uses_table and not (actual.role and actual.role["can_read"]):
        role = environment.source.connector.user
        changes.append(Change("postgres", "grant to", role, "create", "the connector reads the outbox table"))
    if source.uses_table and actual.publication is not None and actual.publication["puballtables"]:
        reason = "it contains every table of the database; updates and deletes in them would stop the task"
        changes.append(Change("postgres", "publication", source.publication, "update", reason))
    elif source.uses_table and actual.publication is not None and not actual.columns:
        reason = "it must contain the new outbox table"
        changes.append(Change("postgres", "publication", source.publication, "update", reason))
    elif actual.publication is None:
        reason = "inserts only" if source.uses_table else "no table: logical decoding messages need no entry"
        changes.append(Change("postgres", "publication", source.publication, "create", reason))
    if actual.slot is None:
        changes.append(Change("postgres", "slot", source.slot, "create", "the server retains WAL for the connector"))
    return changes


def wrong_columns(pipeline: Pipeline, columns: dict[str, str]) -> dict[str, tuple[str, ...]]:
    """Return a mapping from each contract column that is missing or has a wrong type to the accepted types."""
    result = {}
    for key, name in pipeline.source.columns.model_dump().items():
        accepted_types = PAYLOAD_TYPES[pipeline.payload_type] if key == "payload" else (COLUMN_TYPES[key],)
        if name not in columns or _contract_type(columns[name]) not in accepted_types:
            result[name] = accepted_types
    return result


def _contract_type(actual_type: str) -> str:
    """Return the type's name in the contract: `text` for varchar, which Debezium and the transform treat as text."""
    return "text" if VARCHAR.fullmatch(actual_type) else actual_type


def renamed_column(pipeline: Pipeline, columns: dict[str, str], accepted_types: tuple[str, ...]) -> str | None:
    """Return the current name of a column that may have been renamed: the only unused column of an accepted type."""
    unused_columns = columns.keys() - pipeline.outbox_columns - {"seq"}
    candidates = [name for name in unused_columns if _contract_type(columns[name]) in accepted_types]
    return candidates[0] if len(candidates) == 1 else None


def column_problems(pipeline: Pipeline, columns: dict[str, str]) -> list[str]:
    """Return a description of each required column that is missing or has the wrong type."""
    problems = [
        f"{name} is {columns[name]}, not {' or '.join(types)}" if name in columns else f"{name} is missing"
        for name, types in wrong_columns(pipeline, columns).items()
    ]
    for aggregate_type, field in pipeline.partition_fields.items():
        if field not in columns:
            problems.append(f"{field}, the partition_field of {aggregate_type}, is missing")
    return [*problems, *_additional_column_problems(pipeline.source, columns)]


def _additional_column_problems(source: Source, columns: dict[str, str]) -> Iterator[str]:
    """Yield a description of each additional column that is missing or has an unsupported type."""
    column = source.schema_version_column
    if column and column not in columns:
        yield f"{column}, the schema_version_column, is missing"
    elif column and SCHEMA_VERSION_TYPES.fullmatch(columns[column]) is None:
        yield f"{column}, the schema_version_column, is {columns[column]}, not text or an integer type"
    for name in source.header_columns:
        if name not in columns:
            yield f"{name}, one of the header_columns, is missing"
        elif UNSUPPORTED_HEADER_TYPES.fullmatch(columns[name]):
            yield f"{name}, one of the header_columns, is {columns[name]}, which is not converted to text"


def refuse_unsafe(pipeline: Pipeline, actual: ActualDatabase, locked_source: LockedSource | None) -> None:
    """Raise RefusedError if rows could be lost. `locked_source` is None before the first apply and with --recover."""
    source = pipeline.source
    if actual.is_standby:
        raise RefusedError("the database is a standby", "set source.host to the host of the primary")
    if actual.wal_level != "logical":
        hint = "set wal_level = logical and restart PostgreSQL"
        raise RefusedError(f"wal_level is {actual.wal_level!r}, not 'logical'", hint)
    problems = column_problems(pipeline, actual.columns) if actual.columns and source.uses_table else []
    if problems:
        raise RefusedError(
            f"table {source.table} does not follow the contract: {'; '.join(problems)}",
            "add or alter the columns as described in docs/contract.md, or set their names under source.columns",
        )
    if locked_source is not None:
        _refuse_other_source(source, actual, locked_source)
    if actual.publication is not None and source.uses_table:
        if actual.columns:
            _refuse_incomplete_publication(source, actual.publication)
        else:
            _refuse_publication_of_other_tables(source, actual.publication)
    if actual.slot is not None:
        _refuse_wrong_slot(source, actual, actual.slot, is_locked=locked_source is not None)


def _refuse_incomplete_publication(source: Source, publication: client.Row) -> None:
    """Raise RefusedError if the publication omits rows: the slot would advance past these rows without an error."""
    name, table = source.publication, ddl.quoted_text(source.table)
    if source.table not in publication["tables"] or not publication["pubinsert"]:
        problem, option, check = "publishes no inserts", "set (publish = 'insert')", ""
        if source.table not in publication["tables"]:
            problem, option = "does not contain the table", f"add table {table}"
            check = "check source.table and source.publication; if they are correct, "
        raise RefusedError(
            f"publication {name!r} {problem}: the rows of {source.table} do not reach Kafka",
            f"{check}run `alter publication {name} {option}`, then {RESEND_HINT}",
        )
    if publication["filtered"]:
        raise RefusedError(
            f"publication {name!r} has a row filter: the rows that it excludes never reach Kafka",
            f"run `alter publication {name} set table {table}`, then {RESEND_HINT}",
        )


def _refuse_publication_of_other_tables(source: Source, publication: client.Row) -> None:
    """Raise RefusedError if the publication would be replaced although other tables' readers may need it."""
    if publication["tables"] and not publication["puballtables"]:
        tables = ", ".join(publication["tables"])
        message = f"publication {source.publication!r} contains {tables}, and table {source.table} does not exist"
        raise RefusedError(message, "set source.publication to a name that no other pipeline uses")


def _refuse_wrong_slot(source: Source, actual: ActualDatabase, slot: Slot, *, is_locked: bool) -> None:
    """Raise RefusedError if the slot is unusable. `is_locked` tells whether the lock file contains the slot."""
    replace_slot = (
        f"run `outbox stop` and `select pg_drop_replication_slot('{source.slot}')`, which loses undelivered rows, "
        f"then {APPLY_RECOVER_HINT}"
    )
    recover = RECOVER_HINT
    if not is_locked:
        recover = f"set source.slot to another name; if no other connector needs the slot, {replace_slot}"
    if slot.wal_status == "lost":
        raise RefusedError(
            f"slot {source.slot!r} is lost: the server has removed WAL that the connector needs",
            recover,
        )
    if slot.plugin != "pgoutput" or slot.database != actual.database:
        raise RefusedError(
            f"slot {source.slot!r} decodes {slot.database!r} with {slot.plugin}, not {actual.database!r} with pgoutput",
            "check source.database, or set source.slot to another name; if no other connector needs the slot, "
            f"{replace_slot}",
        )
    if actual.publication is None:
        raise RefusedError(
            f"slot {source.slot!r} exists but publication {source.publication!r} does not: rows written before the "
            "publication is created would be lost",
            recover,
        )


def _refuse_other_source(source: Source, actual: ActualDatabase, locked_source: LockedSource) -> None:
    """Raise RefusedError if the database, slot or publication is not the one in the lock file."""
    if locked_source.system_identifier != actual.system_identifier:
        raise RefusedError(
            f"the system identifier of the database is {actual.system_identifier}, "
            f"but the lock file has {locked_source.system_identifier}",
            f"check source.host; {NEW_DATABASE_HINT}",
        )
    if locked_source.timeline != actual.timeline:
        raise RefusedError(
            f"the timeline of the server is {actual.timeline}, but the lock file has {locked_source.timeline}: the "
            "server was promoted or restored, and WAL positions may be lower than before",
            RECOVER_HINT,
        )
    if locked_source.slot != source.slot:
        raise RefusedError(
            f"source.slot is {source.slot!r}, but the lock file has {locked_source.slot!r}: the connector's offset "
            "belongs to the slot in the lock file",
            f"set source.slot to {locked_source.slot!r}; if the change is intended: {APPLY_RECOVER_HINT}",
        )
    if actual.slot is None:
        raise RefusedError(
            f"slot {source.slot!r}, created at {locked_source.slot_lsn}, does not exist: the connector never receives "
            "the rows after the last LSN that the slot had confirmed",
            RECOVER_HINT,
        )
    if actual.publication is not None and actual.publication["oid"] != locked_source.publication_oid:
        raise RefusedError(
            f"publication {source.publication!r} was recreated after the slot: rows written in the meantime are lost",
            f"{RECOVER_HINT}; after a change of source.publication: {APPLY_RECOVER_HINT}",
        )
