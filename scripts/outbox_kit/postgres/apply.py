"""Execution of the planned changes of the source database: table, grants, publication, and slot."""

from __future__ import annotations

from psycopg import sql

from outbox_kit import lsn
from outbox_kit.changes import Change
from outbox_kit.pipeline import Environment, LockedSource, Pipeline
from outbox_kit.postgres import client, ddl
from outbox_kit.postgres.state import FAILOVER_SLOTS_SINCE, read_actual
from outbox_kit.progress import Reporter


def apply(
    connection: client.Connection,
    pipeline: Pipeline,
    environment: Environment,
    changes: list[Change],
    progress: Reporter,
) -> None:
    """Execute `changes` in the given order, which must be that of state.diff()."""
    source = pipeline.source
    statements: dict[str, list[sql.Composed]] = {
        "table": [ddl.create_schema(ddl.schema_of(source.table)), ddl.create_table(pipeline)],
        "grant to": ddl.grant_read(environment.source.connector.user, source.table),
        "publication": [ddl.create_publication(source)],
    }
    for change in changes:
        progress(change.title)
        if change.kind == "slot":
            failover = client.read_server(connection)["version"] >= FAILOVER_SLOTS_SINCE
            client.create_slot(connection, source.slot, failover=failover)
        else:
            for statement in statements[change.kind]:
                connection.execute(statement)


def source_identity(
    connection: client.Connection, pipeline: Pipeline, environment: Environment, locked_source: LockedSource | None
) -> LockedSource:
    """Return the identity of database, slot and publication for the lock file.

    If `locked_source`, which the lock file contains now, has the same slot name, keep its slot LSN and publication oid.
    """
    actual = read_actual(connection, pipeline, environment)
    if actual.slot is None or actual.slot.confirmed_flush is None or actual.publication is None:
        raise ValueError("source_identity() requires the slot and the publication that apply() creates")
    previous = locked_source if locked_source is not None and locked_source.slot == pipeline.source.slot else None
    return LockedSource(
        system_identifier=actual.system_identifier,
        timeline=actual.timeline,
        slot=pipeline.source.slot,
        slot_lsn=previous.slot_lsn if previous else lsn.format_lsn(actual.slot.confirmed_flush),
        publication_oid=previous.publication_oid if previous else actual.publication["oid"],
    )
