"""Wait until a started connector reads its slot.

After a start, Debezium searches for its start position until a transaction is committed after its stored offset, and
then reconnects (WalPositionLocator). Until then it confirms no LSN, and the server retains WAL. A heartbeat of Debezium
does not end this search, so a transaction is committed here.
"""

from __future__ import annotations

from contextlib import suppress

from outbox_events.waiting import Observation, wait_for
from outbox_kit.connect.lifecycle import WORKER_LOG_HINT, raise_if_failed
from outbox_kit.deployment.deployment import Deployment
from outbox_kit.errors import WaitTimeoutError
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres.replication_slot import Slot, read_slot

SLOT_TIMEOUT_S = 60
POLL_INTERVAL_S = 0.2


def wait_until_reading(deployment: Deployment) -> None:
    """Commit a transaction that results in no record, and wait until the connector has read it.

    After SLOT_TIMEOUT_S (large transaction), wait until the slot is active. Raises FailedError, WaitTimeoutError.
    """
    name, slot_name = deployment.pipeline.connector.name, deployment.pipeline.source.slot
    with postgres_client.connected(deployment.environment.source) as connection:
        lsn_before = _confirmed_lsn(read_slot(connection, slot_name))
        postgres_client.commit_heartbeat(connection)

        def poll_confirmed() -> Observation[bool]:
            raise_if_failed(name, deployment.connect.status(name))
            slot = read_slot(connection, slot_name)
            active, confirmed = slot is not None and slot.active, _confirmed_lsn(slot)
            return Observation((active and confirmed > lsn_before) or None, f"active: {active}, LSN: {confirmed}")

        def poll_active() -> Observation[bool]:
            slot = read_slot(connection, slot_name)
            return Observation((slot is not None and slot.active) or None, "the slot is not active")

        with suppress(WaitTimeoutError):
            wait_for(f"slot {slot_name} to advance", poll_confirmed, seconds=SLOT_TIMEOUT_S, interval=POLL_INTERVAL_S)
            return
        wait_for(f"slot {slot_name} to be active", poll_active, seconds=SLOT_TIMEOUT_S, hint=WORKER_LOG_HINT)


def _confirmed_lsn(slot: Slot | None) -> int:
    return (slot.confirmed_flush if slot else None) or 0
