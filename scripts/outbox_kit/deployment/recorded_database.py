"""Compare the database and its outbox table with the lock file, also if no slot exists that identifies them."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from outbox_events.errors import RejectedError, UnreachableError
from outbox_kit.deployment.deployment import Deployment
from outbox_kit.deployment.source_epochs import refuse_relay_of_other_pipeline
from outbox_kit.pipeline import Lock, LockedDatabase
from outbox_kit.postgres import client as postgres_client
from outbox_kit.results.changes import Change, System

OTHER_DATABASE = "its rows would be sent to the topics of the database in the lock file"


def read_database(deployment: Deployment) -> LockedDatabase:
    """Return the identity of the database and the table. Raises RefusedError if another pipeline's relay uses it."""
    source = deployment.pipeline.source
    with postgres_client.connected(deployment.environment.source) as connection:
        refuse_relay_of_other_pipeline(deployment.pipeline, *postgres_client.read_relay(connection, source.table))
        return LockedDatabase(
            system_identifier=postgres_client.read_system_identifier(connection),
            name=str(postgres_client.read_server(connection)["database"]),
            table=source.table if source.uses_table else None,
        )


def plan_database(
    deployment: Deployment, lock: Lock | None, systems: Collection[System], *, recover: bool
) -> Iterator[Change]:
    """Yield a dangerous change if the database or the table is not the recorded one. `lock` is the lock file.

    With a slot in the lock file, the plan of the slot compares them, unless `recover` replaces the slot.
    """
    if lock is not None and lock.source is not None and not recover:
        return
    try:
        actual = read_database(deployment)
    except (UnreachableError, RejectedError):  # a plan of other systems does not need the database
        if {"postgres", "connect"} & set(systems):
            raise
        return
    recorded = lock.database if lock is not None else None
    if lock is not None and lock.source is not None:  # an earlier release did not record name and table
        recorded = (recorded or actual).model_copy(update={"system_identifier": lock.source.system_identifier})
    if recorded is not None and recorded != actual:
        reason = "the lock file has another database or outbox table"
        before, after = _text(recorded), _text(actual)
        danger = f"{before} → {after}: {OTHER_DATABASE}"
        yield Change("postgres", "database", actual.name, "adopt", reason, before, after, danger=danger)


def _text(database: LockedDatabase) -> str:
    table = f", table {database.table}" if database.table else ""
    return f"{database.name} of server {database.system_identifier}{table}"
