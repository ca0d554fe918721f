"""Check that outbox rows may be deleted: the source is unchanged, and its slot has confirmed the rows."""

from __future__ import annotations

from psycopg import sql

from outbox_events.contract import lsn
from outbox_events.errors import RefusedError
from outbox_events.text import format_size
from outbox_events.waiting import Observation, wait_for
from outbox_kit.connect import state as connect_state
from outbox_kit.connect.state import ActualConnector
from outbox_kit.delivery.outbox_rows import publications_of_deletes
from outbox_kit.deployment import Deployment
from outbox_kit.deployment.lag import read_positions
from outbox_kit.deployment.preconditions import require_connector, require_unchanged_source
from outbox_kit.pipeline import Lock, Pipeline, Source
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres.client import Connection
from outbox_kit.postgres.replication_slot import Slot, SlotCounters, is_confirmed_by, read_counters, read_slot
from outbox_kit.postgres.state import ActualDatabase
from outbox_kit.results import Reporter
from outbox_kit.results.repair_commands import APPLY_RECOVER_HINT, RECOVER_HINT


def refuse_unsafe_pruning(deployment: Deployment, connection: Connection, progress: Reporter) -> Lock:
    """Return the lock file. Raises RefusedError if the slot cannot prove delivery, or if deletes would stop a task."""
    pipeline = deployment.pipeline
    require_table(pipeline, "remove `outbox prune` from its schedule: PostgreSQL removes messages with the WAL")
    lock, database = require_applied_source(deployment)
    _refuse_older_slot(lock, database)
    refuse_published_deletes(pipeline.source, database)
    for name in publications_of_deletes(connection, pipeline.source):
        progress(f"publication {name} publishes the deletes of {pipeline.source.table}: its subscribers receive them")
    return lock


def require_table(pipeline: Pipeline, hint: str) -> None:
    """Raise RefusedError, with this hint, if the pipeline has no outbox table."""
    if not pipeline.source.uses_table:
        messages = "its events are logical decoding messages (source.message_prefix)"
        raise RefusedError(f"pipeline {pipeline.name} has no outbox table: {messages}", hint)


def require_applied_source(deployment: Deployment) -> tuple[Lock, ActualDatabase]:
    """Return the result of require_unchanged_source(). Also raises RefusedError if an apply is unfinished."""
    lock, database = require_unchanged_source(deployment)
    if lock.unfinished is not None:
        hint = RECOVER_HINT if lock.unfinished == "recover" else "run `outbox apply` to complete it"
        raise RefusedError(f"a command was interrupted ({lock.unfinished})", hint)
    return lock, database


def _refuse_older_slot(lock: Lock, database: ActualDatabase) -> None:
    """Raise RefusedError if the slot's confirmed LSN is below the LSN at which `apply` created the slot."""
    slot, recorded = database.slot, lock.source
    confirmed = slot.confirmed_flush if slot else None
    if recorded is None or confirmed is None or confirmed < lsn.parse(recorded.slot_lsn):
        position = recorded.slot_lsn if recorded else "none"
        raise RefusedError(
            f"the slot is at {lsn.describe(confirmed)}, below {position} in the lock file: it was recreated, or the "
            "server was restored",
            APPLY_RECOVER_HINT,
        )


def refuse_published_deletes(source: Source, database: ActualDatabase) -> None:
    """Raise RefusedError if the publication publishes deletes and the task would fail at them."""
    publication = database.publication
    if publication is None or not publication["pubdelete"] or source.deleted_rows == "ignore":
        return
    name = sql.Identifier(source.publication).as_string(None)
    raise RefusedError(
        f"publication {source.publication!r} publishes deletes: the connector's task would fail at a deleted row",
        f"run `alter publication {name} set (publish = 'insert')`, or set source.deleted_rows: ignore",
    )


def wait_delivered(
    deployment: Deployment,
    connection: Connection,
    counters: SlotCounters | None,
    position: int,
    seconds: float,
    progress: Reporter,
) -> None:
    """Wait until the slot has confirmed the WAL position `position`. `counters` must be read before `position` is read.

    Raises WaitTimeoutError. Raises RefusedError if the slot or the source was replaced meanwhile, or if the connector
    is stopped and cannot advance the slot.
    """
    name, slot_name = deployment.pipeline.connector.name, deployment.pipeline.source.slot
    progress(f"wait until slot {slot_name} has confirmed {lsn.format_lsn(position)}")
    postgres_client.commit_heartbeat(connection)  # in an idle database, the slot would not reach the position

    def poll() -> Observation[bool]:
        slot = read_slot(connection, slot_name)
        if slot is None:
            raise RefusedError(f"slot {slot_name!r} was dropped; no row was deleted", RECOVER_HINT)
        return Observation(is_confirmed_by(slot, position) or None, _describe(slot, position))

    if poll().value is None:
        refuse_stopped_connector(name, require_connector(deployment))
    hint = "check the connector with `outbox status`; no row was deleted, so run the command again"
    wait_for(f"slot {slot_name} to confirm {lsn.format_lsn(position)}", poll, seconds=seconds, hint=hint)
    _refuse_other_slot(connection, slot_name, counters)
    require_unchanged_source(deployment)
    # A recreated slot starts after the rows, whereas the connector's offset is still before them.
    positions = read_positions(deployment, require_connector(deployment))
    connect_state.refuse_advanced_slot(name, slot_name, positions.connector, positions.confirmed)


def refuse_stopped_connector(name: str, actual: ActualConnector) -> None:
    """Raise RefusedError if the connector is paused or stopped, because the slot would not advance."""
    if actual.status is not None and not connect_state.is_in_state("running", actual.status):
        message = f"connector {name!r} is {actual.status.connector_state}, so the slot does not advance"
        raise RefusedError(message, "run `outbox resume`, then the command again")


def _describe(slot: Slot, position: int) -> str:
    remaining = max(0, position - (slot.confirmed_flush or 0))
    return f"{'active' if slot.active else 'not active'}, {format_size(remaining)} are not confirmed"


def _refuse_other_slot(connection: Connection, slot_name: str, before: SlotCounters | None) -> None:
    """Raise RefusedError if, since `before` was read, the slot was recreated, which resets its counters."""
    after = read_counters(connection, slot_name)
    if before is None or after is None or not before.may_precede(after):
        raise RefusedError(
            f"slot {slot_name!r} was created again, or its statistics were reset, while the command was running; "
            "no row was deleted",
            "check the slot with `outbox verify`, then run the command again",
        )
