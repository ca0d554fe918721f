"""Lets a connector that was just started find its place in the log, so that no business row has to wait for that.

Debezium looks for the place to go on from until a transaction is committed beyond its stored position, a seed above
all; then it connects anew. Until then it confirms nothing, sends no heartbeat, and the server keeps WAL
(WalPositionLocator). A message that is not transactional, as its heartbeat is, does not end that.
"""

from __future__ import annotations

from contextlib import suppress

from outbox_kit.connect import lifecycle as connect_lifecycle
from outbox_kit.deployment.context import Deployment
from outbox_kit.errors import WaitTimeoutError
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres import wal_positions as postgres_positions
from outbox_kit.waiting import Seen, wait_for

SLOT_TIMEOUT_S = 60
LOOK_EVERY_S = 0.2
LOG = "look at the Connect worker's log"


def wait_reading(deployment: Deployment) -> None:
    """Commit a transaction without a record, and wait until the connector that runs has read it.

    One that is busy with a large transaction is only waited for until somebody reads the slot. Raises FailedError,
    WaitTimeoutError.
    """
    name, slot = deployment.pipeline.connector.name, deployment.pipeline.source.slot
    with postgres_client.connected(deployment.environment.source) as connection:
        before = postgres_positions.positions(connection, slot)["confirmed_flush"]
        postgres_client.emit_transaction(connection)

        def moved() -> Seen[bool]:
            connect_lifecycle.refuse_failed(name, deployment.connect.status(name))
            row = postgres_positions.positions(connection, slot)
            moves = row["active"] and row["confirmed_flush"] > before
            return Seen(True if moves else None, f"active: {row['active']}, confirmed: {row['confirmed_flush']}")

        def read() -> Seen[bool]:
            row = postgres_positions.positions(connection, slot)
            return Seen(True if row["active"] else None, "not active")

        with suppress(WaitTimeoutError):
            wait_for(f"slot {slot} to move", moved, seconds=SLOT_TIMEOUT_S, every=LOOK_EVERY_S, hint=LOG)
            return
        wait_for(f"slot {slot} to be read", read, seconds=SLOT_TIMEOUT_S, hint=LOG)
