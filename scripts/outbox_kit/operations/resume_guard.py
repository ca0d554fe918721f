"""Conditions under which a connector may start: lock file, database, slot and offset are consistent."""

from __future__ import annotations

from outbox_kit.connect import state as connect_state
from outbox_kit.connect.state import ActualConnector
from outbox_kit.deployment import Deployment, refuse_skipped_rows
from outbox_kit.deployment.source_epochs import refuse_relayed_states
from outbox_kit.errors import RefusedError
from outbox_kit.operations.lag import read_positions
from outbox_kit.pipeline import Lock
from outbox_kit.postgres import state as postgres_state
from outbox_kit.postgres.state import ActualDatabase


def require_connector(deployment: Deployment) -> ActualConnector:
    """Return the live connector. Raises RefusedError if it does not exist."""
    name = deployment.pipeline.connector.name
    actual = connect_state.read_actual(deployment.connect, name)
    if actual.config is None:
        raise RefusedError(f"connector {name!r} does not exist at {deployment.connect.url}", "run `outbox apply`")
    return actual


def require_unchanged_source(deployment: Deployment) -> tuple[Lock, ActualDatabase]:
    """Return lock file and database. Raises RefusedError if slot, publication or database differ from the lock file."""
    lock = deployment.lock()
    if lock is None or lock.source is None:
        raise RefusedError(
            f"lock file {deployment.lock_file} does not contain the slot: the live slot cannot be compared with it",
            "restore the lock file from version control, or run `outbox apply`",
        )
    database = deployment.read_database()
    postgres_state.refuse_unsafe(deployment.pipeline, database, lock.source)
    return lock, database


def refuse_unsafe_start(deployment: Deployment, actual: ActualConnector, *, skip_rows: bool = False) -> None:
    """Raise RefusedError if a connector that starts now could lose rows. `skip_rows` accepts an offset that skips rows.

    `actual` must be read before the call, so that its offset cannot be ahead of the server's LSN.
    """
    name = deployment.pipeline.connector.name
    lock = deployment.lock()
    if lock is not None and lock.unfinished == "recover":
        raise RefusedError("`outbox apply --recover` was interrupted", "run `outbox apply` to complete the recovery")
    lock, database = require_unchanged_source(deployment)
    refuse_relayed_states(lock, database)
    connect_state.refuse_lower_epoch(name, actual, lock, increased=False)
    connect_state.refuse_inconsistent_offset(name, actual, lock, database.wal_position)
    if not connect_state.stored_lsn(actual):
        raise RefusedError(
            f"connector {name!r} has no offset: it would start at the server's LSN, and undelivered "
            "rows before this LSN would be lost",
            "run `outbox apply`, which stores the slot's LSN as the connector's offset",
        )
    positions = read_positions(deployment, actual)
    connect_state.refuse_advanced_slot(name, deployment.pipeline.source.slot, positions.connector, positions.confirmed)
    if not skip_rows:
        refuse_skipped_rows(deployment, lock, database.slot, positions.connector)
