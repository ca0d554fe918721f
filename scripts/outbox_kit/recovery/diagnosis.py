"""Diagnose why the connector cannot continue at its last position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from outbox_events.contract import lsn
from outbox_events.errors import RefusedError
from outbox_kit.connect import state as connect_state
from outbox_kit.deployment import Deployment
from outbox_kit.deployment.lag import Positions, read_positions
from outbox_kit.deployment.preconditions import require_locked_source
from outbox_kit.pipeline import LockedSource
from outbox_kit.postgres.replication_slot import Slot
from outbox_kit.postgres.state import ActualDatabase

CauseName = Literal[
    "slot-missing",
    "slot-invalidated",
    "slot-ahead",
    "publication-recreated",
    "database-replaced",
    "connector-without-offset",
    "recovery-interrupted",
]


@dataclass(frozen=True)
class Cause:
    """Why the connector cannot continue. It has delivered all events up to the LSN `read_up_to`, if that is known."""

    name: CauseName
    text: str
    read_up_to: int | None = None

    @property
    def drops_slot(self) -> bool:
        """Whether the slot, if it exists, must be replaced."""
        return self.name in ("slot-invalidated", "publication-recreated")

    @property
    def replaces_states(self) -> bool:
        """Whether the topics can have states that the database no longer has."""
        return self.name in ("database-replaced", "recovery-interrupted")


def diagnose(deployment: Deployment) -> Cause | None:
    """Return why the connector cannot continue; None if it can. Changes nothing.

    Raises UnreachableError and RejectedError. Raises RefusedError before the first apply and on a standby.
    """
    lock, name = deployment.lock(), deployment.pipeline.connector.name
    actual = connect_state.read_actual(deployment.connect, name)
    database, positions = deployment.read_database(), read_positions(deployment, actual)
    if database.is_standby:
        raise RefusedError("the database is a standby", "set source.host to the host of the primary")
    if lock is not None and lock.unfinished == "recover":
        return Cause("recovery-interrupted", "an earlier recovery was not completed", positions.connector)
    _, recorded = require_locked_source(deployment, lock)
    return (
        _replaced_database(recorded, database, positions)
        or _unusable_slot(deployment, recorded, database, positions)
        or _unusable_offset(deployment, positions)
    )


def _replaced_database(recorded: LockedSource, database: ActualDatabase, positions: Positions) -> Cause | None:
    if database.system_identifier != recorded.system_identifier:
        return Cause(
            "database-replaced",
            f"the system identifier of the database is {database.system_identifier}, but the lock file has "
            f"{recorded.system_identifier}: the database was restored or moved",
        )
    if database.timeline != recorded.timeline:
        return Cause(
            "database-replaced",
            f"the timeline of the server is {database.timeline}, but the lock file has {recorded.timeline}: the server "
            "was promoted or restored",
        )
    if positions.connector is not None and positions.connector > positions.server:
        return Cause(
            "database-replaced",
            f"the offset of the connector is at {lsn.describe(positions.connector)}, beyond the server at "
            f"{lsn.describe(positions.server)}: the server was restored",
        )
    return None


def _unusable_slot(
    deployment: Deployment, recorded: LockedSource, database: ActualDatabase, positions: Positions
) -> Cause | None:
    source, slot, read_up_to = deployment.pipeline.source, database.slot, positions.connector
    if slot is None:
        return Cause("slot-missing", f"slot {source.slot} does not exist", read_up_to)
    if slot.wal_status == "lost":
        return Cause("slot-invalidated", _invalidation(slot), read_up_to or slot.confirmed_flush)
    if database.publication is None or database.publication["oid"] != recorded.publication_oid:
        text = f"publication {source.publication} is missing, or was created after slot {source.slot}"
        return Cause("publication-recreated", text, read_up_to or slot.confirmed_flush)
    if positions.slot_is_ahead:
        confirmed = lsn.describe(positions.confirmed)
        text = (
            f"slot {source.slot} is at {confirmed}, beyond the offset of the connector at {lsn.describe(read_up_to)}: "
            "the slot was created again, or another client advanced it"
        )
        return Cause("slot-ahead", text, read_up_to)
    return None


def _invalidation(slot: Slot) -> str:
    # PostgreSQL 16 and earlier do not report the reason.
    reason = f", invalidation_reason {slot.invalidation_reason}" if slot.invalidation_reason else ""
    return f"the server has invalidated slot {slot.name}: wal_status {slot.wal_status}{reason}"


def _unusable_offset(deployment: Deployment, positions: Positions) -> Cause | None:
    if positions.connector is not None:
        return None
    name = deployment.pipeline.connector.name
    return Cause("connector-without-offset", f"connector {name} has no offset", positions.confirmed)
