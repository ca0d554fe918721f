"""Read the WAL positions of connector, slot and server, compute lags, and wait until a connector reads its slot.

After a start, Debezium searches for its start position until a transaction is committed after its stored offset, and
then reconnects (WalPositionLocator). During this search, it does not confirm LSNs, so the server retains WAL. Debezium
heartbeats do not end the search, so wait_until_reading() commits a transaction.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from outbox_events.contract import lsn
from outbox_events.errors import WaitTimeoutError
from outbox_events.text import format_size
from outbox_events.waiting import Observation, wait_for
from outbox_kit.connect import state as connect_state
from outbox_kit.connect.lifecycle import WORKER_LOG_HINT, raise_if_failed
from outbox_kit.connect.state import ActualConnector
from outbox_kit.deployment.deployment import Deployment
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres.replication_slot import Slot, read_slot

SLOT_TIMEOUT_S = 60
POLL_INTERVAL_S = 0.2


@dataclass(frozen=True)
class Positions:
    """LSNs, as numbers, of the connector's offset, the slot (`confirmed`, `restart`) and the end of the server's WAL.

    An LSN is None if the connector has no offset or the slot does not exist. `offsets` are in Connect's format.
    """

    offsets: list[dict[str, Any]]
    connector: int | None
    confirmed: int | None
    restart: int | None
    server: int

    @property
    def slot_is_ahead(self) -> bool:
        """Whether the slot's confirmed LSN is beyond the connector's offset, so that the rows in between are lost."""
        return self.confirmed is not None and self.connector is not None and self.confirmed > self.connector

    def explanations(self) -> list[str]:
        """Return sentences that explain the LSNs, for example how much WAL the connector has not read yet."""
        if self.confirmed is None or self.restart is None:
            return ["the slot does not exist: the connector never receives the rows after the slot's last LSN"]
        messages = [f"{format_size(self.server - self.restart)} of WAL are retained for the slot"]
        if self.connector is None:
            messages.append("the connector has no offset: `outbox apply` seeds it with the slot's LSN")
        elif self.connector > self.server:
            messages.append("the connector is ahead of the server, as happens after a restore: rows would be skipped")
        elif self.slot_is_ahead:
            size = format_size(self.confirmed - self.connector)
            messages.append(f"the slot is {size} ahead of the connector: another client advanced it and rows are lost")
        else:
            unread = format_size(self.server - self.connector)
            unconfirmed = format_size(self.connector - self.confirmed)
            messages += [
                f"{unread} of WAL (of all tables) are not yet read by the connector",
                f"{unconfirmed} of WAL are in Kafka and not yet confirmed to the slot: a reset sends them again",
            ]
        return messages

    def to_dict(self) -> dict[str, Any]:
        """Return the document that `--output json` prints."""
        return {
            "offsets": self.offsets,
            "connector": lsn.as_json(self.connector),
            "slot_confirmed_flush": lsn.as_json(self.confirmed),
            "slot_restart": lsn.as_json(self.restart),
            "server": lsn.as_json(self.server),
            "meaning": self.explanations(),
        }


def read_positions(deployment: Deployment, actual: ActualConnector) -> Positions:
    """Return the LSNs. `actual` must be read before the call, so that its offset is not ahead of the server's LSN."""
    with postgres_client.connected(deployment.environment.source) as connection:
        slot = read_slot(connection, deployment.pipeline.source.slot)
        confirmed, restart = (slot.confirmed_flush, slot.restart_lsn) if slot else (None, None)
        if 0 < (connect_state.stored_lsn(actual) or 0) < (confirmed or 0):  # a running connector may have advanced both
            actual = connect_state.read_actual(deployment.connect, deployment.pipeline.connector.name)
        server = postgres_client.read_server(connection)["wal_position"]  # last, so that no offset is beyond it
    return Positions(actual.offsets, connect_state.stored_lsn(actual) or None, confirmed, restart, server)


def wait_until_reading(deployment: Deployment) -> None:
    """Commit a transaction that does not produce a record, and wait until the connector has read it.

    If this takes longer than SLOT_TIMEOUT_S, only wait until the slot is active. Raises FailedError, WaitTimeoutError.
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
