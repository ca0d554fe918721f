"""Recover a pipeline: replace the slot, resend rows whose delivery is not proven, and report what remains unproven."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from outbox_events.contract import lsn
from outbox_events.errors import OutboxError
from outbox_events.text import format_size, plural
from outbox_kit import backfill as backfills
from outbox_kit.connect import lifecycle
from outbox_kit.connect import state as connect_state
from outbox_kit.delivery.preconditions import refuse_published_deletes
from outbox_kit.deployment import Deployment, apply, pending_backfill_steps
from outbox_kit.deployment.identity import refuse_other_owners
from outbox_kit.deployment.plan import make_plan
from outbox_kit.deployment.plan_model import Plan
from outbox_kit.deployment.preconditions import refuse_dangerous, refuse_invalid_config, refuse_invalid_topics
from outbox_kit.deployment.recorded_database import read_database
from outbox_kit.kafka.topic_identity import types_with_pending_backfill
from outbox_kit.operations.preconditions import DEFAULT_LIMIT, DeletionLimit
from outbox_kit.pipeline import Lock
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres.replication_slot import read_slot, wait_inactive
from outbox_kit.recovery import completion
from outbox_kit.recovery.diagnosis import Cause, diagnose
from outbox_kit.recovery.resend_rows import ResentRows, resend_rows
from outbox_kit.results import Reporter

PROOF_WAIT_S = 120


@dataclass
class Recovery:
    """Result of a recovery. If `cause` is None, nothing was wrong, and nothing was changed.

    No connector has read the WAL from `unread_from` (None if unknown) to `unread_to` (None if there is no gap).
    `resent` maps each type to the number of rows that were sent again. `unrouted` contains those types that the
    pipeline does not have. `unproven` lists possible losses and remedies.
    """

    cause: Cause | None
    unread_from: int | None = None
    unread_to: int | None = None
    resent: dict[str, int] = field(default_factory=dict)
    unrouted: list[str] = field(default_factory=list)
    unproven: list[str] = field(default_factory=list)

    @property
    def gap(self) -> str:
        """Description of the unread WAL; empty if all WAL was read."""
        if self.unread_to is None:
            return ""
        if self.unread_from is None:
            return f"WAL from an unknown LSN to {lsn.format_lsn(self.unread_to)} was not read"
        size = format_size(self.unread_to - self.unread_from)
        return f"WAL from {lsn.format_lsn(self.unread_from)} to {lsn.format_lsn(self.unread_to)} ({size}) was not read"

    @property
    def lines(self) -> list[str]:
        """Description of the result without its cause, one fact per line."""
        if self.cause is None:
            return self.unproven
        rows = plural(sum(self.resent.values()), "outbox row")
        dead = (
            f"rows of {', '.join(self.unrouted)}, which the pipeline does not have, became dead letters: "
            "run `outbox dead-letter list`"
        )
        return [
            *([self.gap] if self.gap else []),
            f"{rows} sent again",
            *([dead] if self.unrouted else []),
            *self.unproven,
        ]


def recover(
    deployment: Deployment,
    progress: Reporter,
    *,
    limit: DeletionLimit | None = None,
    wait_seconds: float = PROOF_WAIT_S,
    allow: Collection[str] = (),
    command: str = "outbox recover",
) -> Recovery:
    """Make the connector read a new slot, and send again those rows whose delivery the topics do not prove.

    `limit` restricts the tombstones per topic. Wait at most `wait_seconds` until the rows are proven. `allow` names the
    objects of other dangerous changes, and `command` is named in the hint to allow them. The next recovery completes an
    interrupted one. Raises RefusedError, RejectedError, UnreachableError, WaitTimeoutError.
    """
    with deployment.exclusive("recover", progress):
        cause = diagnose(deployment)
        if cause is None:
            return Recovery(None, unproven=unfinished_steps(deployment))
        found = read_database(deployment, None)
        allowed = [*allow, f"database {found.system_identifier}/{found.name}"]  # accepted by the caller
        refuse_other_owners(deployment)  # before the slot is dropped
        slot = deployment.read_database().slot
        drops_slot = slot is not None and (cause.drops_slot or slot.wal_status == "lost")
        plan = _refuse_unsafe(deployment, allowed, progress, command, drops_slot=drops_slot)
        pending = _pending_types(deployment)
        _prepare(deployment, plan, progress, drops_slot=drops_slot)
    recovery, rows = Recovery(cause), ResentRows()

    def before_start(lock: Lock) -> None:
        nonlocal rows
        _note_gap(deployment, recovery)
        if deployment.pipeline.source.uses_table:
            rows = resend_rows(deployment, lock, progress)
            recovery.resent = dict(rows.resent)
            recovery.unrouted = sorted(rows.resent.keys() - deployment.pipeline.routed.keys())

    apply(deployment, progress, recover=True, allow=allowed, before_start=before_start, command=command)
    required = sorted(_pending_types(deployment) - pending)
    if required and not (cause.replaces_states or recovery.gap):  # all WAL was read
        backfills.acknowledge(deployment, required, progress)
    _complete(deployment, recovery, rows, limit or DeletionLimit.parse(DEFAULT_LIMIT), progress, wait_seconds)
    return recovery


def _refuse_unsafe(
    deployment: Deployment, allow: Collection[str], progress: Reporter, command: str, *, drops_slot: bool
) -> Plan:
    """Return the plan. Raises RefusedError for every reason for which `apply` would, before the connector is stopped.

    A connector with a higher source epoch than the lock file was applied with another lock file.
    """
    name, lock = deployment.pipeline.connector.name, deployment.lock()
    actual = connect_state.read_without_offsets(deployment.connect, name)
    connect_state.refuse_lower_epoch(name, actual, lock, increased=False)
    plan = make_plan(deployment, recover=True, drops_slot=drops_slot)
    refuse_dangerous(plan, allow, command)
    refuse_invalid_topics(deployment, plan)
    refuse_invalid_config(deployment, plan, progress)
    return plan


def unfinished_steps(deployment: Deployment) -> list[str]:
    """Return the commands that remain if an earlier recovery was interrupted before it had sent all states."""
    steps = pending_backfill_steps(deployment)
    return [f"a backfill is pending: {steps}"] if steps else []


def _pending_types(deployment: Deployment) -> set[str]:
    lock = deployment.lock()
    return set(types_with_pending_backfill(lock.topics)) if lock else set()


def _prepare(deployment: Deployment, plan: Plan, progress: Reporter, *, drops_slot: bool) -> None:
    """Stop the connector and its copies, and drop the slot if necessary. Raises RefusedError, WaitTimeoutError."""
    name, source = deployment.pipeline.connector.name, deployment.pipeline.source
    if source.uses_table:
        refuse_published_deletes(source, deployment.read_database())
    was_running = lifecycle.is_running(deployment.connect.status(name))
    with lifecycle.resume_on_error(deployment.connect, name, progress, was_running=was_running):
        if deployment.connect.config(name) is not None:
            progress(f"stop connector {name}")
            lifecycle.stop(deployment.connect, name)
        for change in plan.changes_of("connect"):
            if change.action == "delete":  # a copy can read the slot
                progress(f"stop connector {change.name}")
                lifecycle.stop(deployment.connect, change.name)
        with postgres_client.connected(deployment.environment.source) as connection:
            wait_inactive(connection, source.slot)
            if drops_slot:
                progress(f"drop slot {source.slot}")
                postgres_client.drop_slot(connection, source.slot)


def _note_gap(deployment: Deployment, recovery: Recovery) -> None:
    """Record the WAL between the connector's last position and the new slot's start. A failover slot leaves no gap."""
    with postgres_client.connected(deployment.environment.source) as connection:
        slot = read_slot(connection, deployment.pipeline.source.slot)
    confirmed = slot.confirmed_flush if slot else None
    read_up_to = recovery.cause.read_up_to if recovery.cause else None
    if confirmed is not None and (read_up_to is None or read_up_to < confirmed):
        recovery.unread_from, recovery.unread_to = read_up_to, confirmed


def _complete(
    deployment: Deployment,
    recovery: Recovery,
    rows: ResentRows,
    limit: DeletionLimit,
    progress: Reporter,
    wait_seconds: float,
) -> None:
    """Prove the delivery of the rows, send the states of types with `backfill`, and record what remains unproven."""
    cause = recovery.cause
    if not deployment.pipeline.source.uses_table:
        if recovery.gap:
            reason = f"{recovery.gap}; its events are lost, because messages exist only in the WAL"
            recovery.unproven += completion.request_states(deployment, reason, with_backfill=True)
        return
    try:
        proofs = completion.prove_rows(deployment, progress, wait_seconds)
    except OutboxError as error:
        recovery.unproven.append(f"the delivery of the rows is not proven: {error.message}; {error.hint}")
        proofs = {}
    if cause is not None and cause.replaces_states:
        reason = "the topic can have states that the database no longer has"
        recovery.unproven += completion.request_states(deployment, reason, with_backfill=False)
    elif recovery.gap:
        recovery.unproven += completion.acknowledge_complete(deployment, rows, proofs, progress)
    recovery.unproven += completion.send_states(deployment, limit, progress)
