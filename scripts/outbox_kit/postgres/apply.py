"""Brings the source database to its desired state, in the only safe order."""

from __future__ import annotations

from outbox_kit.changes import Change
from outbox_kit.pipeline import Environment, LockedSource, Pipeline
from outbox_kit.postgres import client
from outbox_kit.postgres.state import FAILOVER_SLOTS_SINCE, read_actual
from outbox_kit.progress import Progress


def apply(
    connection: client.Connection,
    pipeline: Pipeline,
    environment: Environment,
    changes: list[Change],
    progress: Progress,
) -> None:
    """Make `changes`; table, grants, publication, slot, as diff ordered them."""
    source = pipeline.source
    for change in changes:
        progress(f"{change.action} {change.object}")
        kind = change.object.split()[0]
        if kind == "table":
            client.create_table(connection, pipeline)
        elif kind == "grant":
            client.grant_read(connection, environment.source.connector.user, source.table)
        elif kind == "publication":
            client.create_publication(connection, source)
        else:
            failover = client.server(connection)["version"] >= FAILOVER_SLOTS_SINCE
            client.create_slot(connection, source.slot, failover=failover)


def identity(
    connection: client.Connection, pipeline: Pipeline, environment: Environment, locked: LockedSource | None
) -> LockedSource:
    """What the lock file keeps of database, publication and slot; the slot's first position stays as recorded."""
    actual = read_actual(connection, pipeline, environment)
    if actual.slot is None or actual.publication is None:
        msg = "identity() is for a database that apply() has brought to its state"
        raise ValueError(msg)
    same_slot = locked is not None and locked.slot == pipeline.source.slot
    return LockedSource(
        system_identifier=actual.system_identifier,
        timeline=actual.timeline,
        slot=pipeline.source.slot,
        slot_lsn=locked.slot_lsn if locked and same_slot else actual.slot["confirmed_flush_lsn"],
        publication_oid=locked.publication_oid if locked and same_slot else actual.publication["oid"],
    )
