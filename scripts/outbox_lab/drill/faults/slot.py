"""Invalidate the replication slot, as happens if a connector is down for longer than the server retains WAL."""

from __future__ import annotations

from typing import LiteralString

from outbox_events.waiting import Observation, wait_for
from outbox_kit.connect import lifecycle
from outbox_kit.deployment import Deployment
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres.client import Connection
from outbox_kit.postgres.replication_slot import read_slot, wait_inactive
from outbox_lab.drill.stack import DrillStack

INVALIDATION_S = 60
LIMIT_RETAINED_WAL: LiteralString = "alter system set max_slot_wal_keep_size = '1MB'"
RESET_LIMIT: LiteralString = "alter system reset max_slot_wal_keep_size"
RELOAD: LiteralString = "select pg_reload_conf()"
# Each switch ends the current 16 MB segment. The server invalidates slots only at a checkpoint.
END_SEGMENT: LiteralString = "select pg_switch_wal()"
CHECKPOINT: LiteralString = "checkpoint"


def invalidate_slot(drill: DrillStack, deployment: Deployment) -> None:
    """Stop the connector, and write WAL until the server invalidates the connector's slot. Raises WaitTimeoutError."""
    del drill
    slot = deployment.pipeline.source.slot
    lifecycle.stop(deployment.connect, deployment.pipeline.connector.name)
    with postgres_client.connected(deployment.environment.source) as connection:
        wait_inactive(connection, slot)
        _set(connection, LIMIT_RETAINED_WAL)
        try:
            wait_for(f"the loss of slot {slot}", lambda: _write_wal(connection, slot), seconds=INVALIDATION_S)
        finally:
            _set(connection, RESET_LIMIT)


def _write_wal(connection: Connection, slot_name: str) -> Observation[bool]:
    connection.execute(END_SEGMENT)
    connection.execute(CHECKPOINT)
    slot = read_slot(connection, slot_name)
    status = slot.wal_status if slot else "dropped"
    return Observation(status == "lost" or None, f"wal_status is {status}")


def _set(connection: Connection, statement: LiteralString) -> None:
    connection.execute(statement)
    connection.execute(RELOAD)
