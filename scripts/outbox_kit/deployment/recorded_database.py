"""Compare the database and its outbox table with the lock file, also if no slot exists that identifies them."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from outbox_events.errors import RejectedError, UnreachableError
from outbox_kit.deployment.deployment import Deployment
from outbox_kit.deployment.source_epochs import refuse_relay_of_other_pipeline
from outbox_kit.pipeline import Lock, LockedDatabase
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres import ddl
from outbox_kit.results.changes import Change, System

OTHER_DATABASE = "its rows would be sent to the topics of this pipeline"


def read_database(deployment: Deployment, cluster_id: str | None) -> LockedDatabase:
    """Return the identity of the database and the table.

    Raises RefusedError if a relay sends the rows of the table to other topics than those of this pipeline and cluster.
    """
    source = deployment.pipeline.source
    with postgres_client.connected(deployment.environment.source) as connection:
        relay = postgres_client.read_relay(connection, source.table)
        refuse_relay_of_other_pipeline(deployment.pipeline, relay, cluster_id)
        return LockedDatabase(
            system_identifier=postgres_client.read_system_identifier(connection),
            name=str(postgres_client.read_server(connection)["database"]),
            table=source.table if source.uses_table else None,
        )


def plan_database(
    deployment: Deployment, lock: Lock | None, systems: Collection[System], cluster_id: str | None, *, recover: bool
) -> Iterator[Change]:
    """Yield a dangerous change if the database or the table is not the recorded one. `lock` is the lock file.

    With a slot in the lock file, the plan of the slot compares them, unless `recover` replaces the slot. A database
    that no apply has recorded may already be that of another environment, whose connector or relay sends the rows.
    """
    if lock is not None and lock.source is not None and not recover:
        return
    cluster_id = cluster_id or (lock.cluster_id if lock else None)
    try:
        actual = read_database(deployment, cluster_id)
    except (UnreachableError, RejectedError):  # a plan of other systems does not need the database
        if {"postgres", "connect"} & set(systems):
            raise
        return
    recorded = lock.database if lock is not None else None
    if lock is not None and lock.source is not None:  # an earlier release did not record name and table
        recorded = (recorded or actual).model_copy(update={"system_identifier": lock.source.system_identifier})
    reason, before, after = "", _text(recorded) if recorded else "", _text(actual)
    if recorded is None:
        reason = _other_sender(deployment, systems, cluster_id)
    elif recorded != actual:
        reason = "the lock file has another database or outbox table"
    if reason:
        name, danger = f"{actual.system_identifier}/{actual.name}", f"{before} → {after}: {OTHER_DATABASE}"
        yield Change("postgres", "database", name, "adopt", reason, before, after, danger=danger)


def _other_sender(deployment: Deployment, systems: Collection[System], cluster_id: str | None) -> str:
    """Return a text if a relay has sent rows of the table, or a connector of another deployment may send them.

    A plan of PostgreSQL compares the publication itself.
    """
    source = deployment.pipeline.source
    with postgres_client.connected(deployment.environment.source) as connection:
        if postgres_client.read_relay(connection, source.table).source_epoch:
            return f"a relay sends the rows of table {source.table}"
        found = postgres_client.read_publication(connection, source.publication)
    marks = ddl.own_marks(deployment.pipeline, deployment.environment, cluster_id)
    if found is None or found["comment"] in marks or {"postgres", "connect"} & set(systems):
        return ""
    return f"publication {source.publication} exists, so a connector of another environment may send the rows"


def _text(database: LockedDatabase) -> str:
    table = f", table {database.table}" if database.table else ""
    return f"{database.name} of server {database.system_identifier}{table}"
