"""Conditions under which a connector may start: lock file, database, slot and offset are consistent."""

from __future__ import annotations

from outbox_kit.connect import state as connect_state
from outbox_kit.connect.state import ActualConnector
from outbox_kit.deployment import Deployment, refuse_skipped_rows
from outbox_kit.deployment.lag import read_positions
from outbox_kit.deployment.preconditions import require_unchanged_source
from outbox_kit.deployment.source_epochs import refuse_relayed_states
from outbox_kit.errors import RefusedError


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
