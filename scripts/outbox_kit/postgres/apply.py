"""Execute the planned changes to the source database: table, grants, publication, and slot."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import psycopg
from psycopg import sql

from outbox_events.contract import lsn
from outbox_kit.pipeline import Environment, LockedSource, Pipeline
from outbox_kit.postgres import client, ddl
from outbox_kit.postgres.state import FAILOVER_SLOTS_SINCE, read_actual
from outbox_kit.results import Reporter
from outbox_kit.results.changes import Change


def apply(
    connection: client.Connection,
    pipeline: Pipeline,
    environment: Environment,
    changes: list[Change],
    progress: Reporter,
    cluster_id: str | None,
) -> None:
    """Execute `changes` in the given order, which must be the order in which state.diff() returns them.

    The table and the publication are changed in one transaction, so no row can be written to an unpublished table. The
    publication is marked as that of this pipeline and of the Kafka cluster.
    """
    source = pipeline.source
    statements: dict[tuple[str, str], list[sql.Composed]] = {
        ("table", "create"): [ddl.create_schema(ddl.schema_of(source.table)), ddl.create_table(pipeline)],
        ("table", "update"): [],  # no statement, because only the lock file changes: it records the new oid
        ("grant to", "create"): ddl.grant_read(environment.source.connector.user, source.table),
        ("publication", "create"): [ddl.create_publication(source)],
        ("publication", "update"): ddl.replace_publication(source),
    }
    with connection.transaction():
        for change in (change for change in changes if change.kind != "slot"):
            progress(change.title)
            for statement in statements[change.kind, change.action]:
                connection.execute(statement)
        _mark(connection, pipeline, environment, cluster_id)
    for change in (change for change in changes if change.kind == "slot"):
        progress(change.title)
        failover = client.read_server(connection)["version"] >= FAILOVER_SLOTS_SINCE
        client.create_slot(connection, source.slot, failover=failover)


def _mark(connection: client.Connection, pipeline: Pipeline, environment: Environment, cluster_id: str | None) -> None:
    """Set the comment of the publication, unless somebody else has set it or the login does not own the publication."""
    publication = client.read_publication(connection, pipeline.source.publication)
    comment: str | None = publication["comment"] if publication else ""
    mark = ddl.publication_mark(pipeline, environment, cluster_id)
    if comment is None or (comment.startswith(ddl.MARK_PREFIX) and not comment.startswith(mark)):
        with suppress(psycopg.errors.InsufficientPrivilege), connection.transaction():
            connection.execute(ddl.mark_publication(pipeline.source.publication, mark))


def source_identity(
    connection: client.Connection,
    pipeline: Pipeline,
    environment: Environment,
    locked_source: LockedSource | None,
    changes: Iterable[Change] = (),
) -> LockedSource:
    """Return the identity of the database, slot and publication to record in the lock file after `changes` were made.

    `locked_source` is the source in the current lock file. If it has the same slot name, its slot LSN is kept. Its
    publication oid is also kept, unless the publication was replaced. The table oid is always read from the database,
    because a plan with a different table oid requires `--allow`.
    """
    actual = read_actual(connection, pipeline, environment)
    if actual.slot is None or actual.slot.confirmed_flush is None or actual.publication is None:
        raise ValueError("source_identity() requires the slot and the publication that apply() creates")
    previous = locked_source if locked_source is not None and locked_source.slot == pipeline.source.slot else None
    is_replaced = any(change.kind == "publication" for change in changes)
    return LockedSource(
        system_identifier=actual.system_identifier,
        timeline=actual.timeline,
        slot=pipeline.source.slot,
        slot_lsn=previous.slot_lsn if previous else lsn.format_lsn(actual.slot.confirmed_flush),
        publication_oid=previous.publication_oid if previous and not is_replaced else actual.publication["oid"],
        table_oid=actual.table_oid,
    )
