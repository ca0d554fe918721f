"""Rows that a connector would skip, because another client set its offset beyond them."""

from __future__ import annotations

from outbox_events.contract import lsn
from outbox_events.contract.source_sequence import WalPosition
from outbox_events.text import plural
from outbox_kit.connect import state as connect_state
from outbox_kit.deployment.deployment import Deployment
from outbox_kit.deployment.source_epochs import highest_version
from outbox_kit.errors import RefusedError
from outbox_kit.pipeline import Lock
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres.count_undelivered import count_between
from outbox_kit.postgres.replication_slot import Slot


def refuse_skipped_rows(deployment: Deployment, lock: Lock | None, slot: Slot | None, offset_lsn: int | None) -> None:
    """Raise RefusedError if no topic has a record of the rows between the LSNs of an inactive slot and the offset.

    A connector that has never run with this lock file may have the offset of a connector with other topics. After a
    crash the offset is beyond the slot, too, but the rows in between are on the topics. A wrong refusal is possible if
    compaction or retention removed these records; then a reset sends the rows again, which changes no state.
    """
    if lock is None or lock.config is None or slot is None or slot.active or slot.confirmed_flush is None:
        return
    confirmed, source = slot.confirmed_flush, deployment.pipeline.source
    if not offset_lsn or offset_lsn <= confirmed:
        return
    with postgres_client.connected(deployment.environment.source) as connection:
        count = count_between(connection, source, after=confirmed, upto=offset_lsn)
    if not count or not _has_sequences(deployment, lock):
        return
    if WalPosition(lock.source_epoch, confirmed).precedes(highest_version(deployment)):
        return
    raise RefusedError(
        f"the offset of connector {deployment.pipeline.connector.name!r} is at {lsn.describe(offset_lsn)}, beyond slot "
        f"{source.slot!r} at {lsn.describe(confirmed)}, and no topic has a record of the {plural(count, 'event')} in "
        "between, which the connector would skip",
        "run `outbox offsets reset`, which lets the connector send them; to skip them, run `outbox stop`, then "
        "`outbox resume --skip-rows`",
    )


def _has_sequences(deployment: Deployment, lock: Lock) -> bool:
    """Return whether the records of the connector show its position: only OutboxRouter writes source_sequence."""
    config = deployment.connect.config(deployment.pipeline.connector.name)
    return connect_state.epoch(deployment.render(lock) if config is None else config) > 0
