"""What must hold before a connector may read again: the slot, the database and the position that were recorded."""

from __future__ import annotations

from outbox_kit.connect import state as connect_state
from outbox_kit.connect.state import ActualConnector
from outbox_kit.deployment import Deployment
from outbox_kit.deployment.plan import read_database
from outbox_kit.errors import RefusedError
from outbox_kit.operations.lag import read_positions
from outbox_kit.pipeline import Lock
from outbox_kit.postgres import state as postgres_state
from outbox_kit.postgres.state import ActualDatabase


def require_connector(deployment: Deployment) -> ActualConnector:
    """The connector as Connect has it. Raises RefusedError where there is none."""
    name = deployment.pipeline.connector.name
    actual = connect_state.read_actual(deployment.connect, name)
    if actual.config is None:
        raise RefusedError(f"there is no connector {name!r} at {deployment.connect.url}", "run `outbox apply`")
    return actual


def require_lock(deployment: Deployment) -> Lock:
    """The lock file, with the source that was deployed to. Raises RefusedError."""
    lock = deployment.lock()
    if lock is None or lock.source is None:
        raise RefusedError(
            f"lock file {deployment.lock_file} does not know the slot: whether this is the right one cannot be told",
            "restore it from version control, or run `outbox apply`",
        )
    return lock


def refuse_other_source(deployment: Deployment) -> tuple[Lock, ActualDatabase]:
    """Slot, publication and database must be those of the lock file. Raises RefusedError."""
    lock = require_lock(deployment)
    database = read_database(deployment)
    postgres_state.refuse_unsafe(deployment.pipeline, database, lock.source)
    return lock, database


def refuse_unsafe_start(deployment: Deployment, actual: ActualConnector) -> None:
    """Stop where a connector that starts now could lose rows without a word. Raises RefusedError.

    `actual` was read before the database is: so its position cannot have passed the server's.
    """
    name = deployment.pipeline.connector.name
    recorded = deployment.lock()
    if recorded is not None and recorded.unfinished == "recover":
        raise RefusedError("`outbox apply --recover` was interrupted", "run `outbox apply`, which finishes it")
    lock, database = refuse_other_source(deployment)
    connect_state.refuse_epoch(name, actual, lock, raised=False)
    connect_state.refuse_position(name, actual, lock, database.wal_position)
    reached = connect_state.position(actual)
    if not reached:
        raise RefusedError(
            f"connector {name!r} has no position: started now, it would begin at the server's, and rows since the "
            "slot was made would be lost",
            "run `outbox apply`, which seeds it with the slot's position",
        )
    at = read_positions(deployment, actual)
    connect_state.refuse_passed(name, deployment.pipeline.source.slot, at.connector, at.confirmed)
