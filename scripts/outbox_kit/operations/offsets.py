"""Moves a connector's position, guarded: stop, wait, back up, reset, resume.

A slot serves nothing before its confirmed position, and a connector that starts beyond the server's position
skips rows in silence; so only what lies between is accepted, and what it costs is said before it is done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outbox_kit.connect import lifecycle as connect_lifecycle
from outbox_kit.connect import state as connect_state
from outbox_kit.connect.offset_seeding import reached
from outbox_kit.connect.state import ActualConnector
from outbox_kit.deployment import Deployment
from outbox_kit.errors import RefusedError
from outbox_kit.operations import offset_backup
from outbox_kit.operations.lag import Move, Positions, read_positions, refuse_unreachable, rows_moved
from outbox_kit.operations.lifecycle import wait_running
from outbox_kit.operations.resume_guard import refuse_other_source, require_connector
from outbox_kit.pipeline import Lock
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres import wal_positions as postgres_positions
from outbox_kit.progress import Progress
from outbox_kit.waiting import Seen, wait_for

SLOT_TIMEOUT_S = 60


@dataclass(frozen=True)
class Reset:
    """What a reset did."""

    backup: Path
    before: int | None
    after: int
    rows: int | None
    resumed: bool


def show(deployment: Deployment) -> Positions:
    """Positions of connector, slot and server. Raises RefusedError where there is no connector."""
    return read_positions(deployment, require_connector(deployment))


def export(deployment: Deployment, path: Path) -> None:
    """Write offsets, slot position and identity to a new file. Raises RefusedError, ConfigurationError."""
    actual = require_connector(deployment)
    offset_backup.write(
        path, offset_backup.take(deployment, actual, read_positions(deployment, actual), deployment.lock())
    )


def preview(deployment: Deployment, source: Path | None, *, skip: bool = False) -> Move:
    """What a reset would move now; `source` is a file of export(), None the slot's position.

    Raises RefusedError where a reset would.
    """
    actual = require_connector(deployment)
    lock, _ = refuse_other_source(deployment)
    positions = read_positions(deployment, actual)
    return refuse_unreachable(positions, reached(_target(deployment, positions, lock, source)), skip=skip)


def reset(deployment: Deployment, source: Path | None, progress: Progress, *, skip: bool = False) -> Reset:
    """Stop, back up, set the position of `source` or of the slot, and resume unless somebody had stopped it.

    `skip` accepts a position that leaves rows out. What fails before the position is set leaves the connector as it
    was found; interrupted later, it stays STOPPED, and the same command can be run again. Raises RefusedError and
    ConfigurationError with nothing changed, WaitTimeoutError, RejectedError.
    """
    name = deployment.pipeline.connector.name
    preview(deployment, source, skip=skip)
    at_rest = connect_lifecycle.is_at_rest(require_connector(deployment).status)
    with connect_lifecycle.resumed_on_error(deployment.connect, name, progress, was_running=not at_rest):
        progress(f"stop connector {name}")
        connect_lifecycle.stop(deployment.connect, name)
        _wait_slot_free(deployment)
        # Read again: until it stopped, the connector went on.
        actual = require_connector(deployment)
        lock, _ = refuse_other_source(deployment)
        positions = read_positions(deployment, actual)
        path = offset_backup.default_path(deployment)
        offset_backup.write(path, offset_backup.take(deployment, actual, positions, lock))
        progress(f"offsets and slot position are in {path}")
        target = _target(deployment, positions, lock, source)
        rows = rows_moved(deployment, move := refuse_unreachable(positions, reached(target), skip=skip))
        progress(move.words(rows))
    _write(deployment, actual, target, progress)
    _start_again(deployment, progress, at_rest=at_rest)
    return Reset(path, positions.connector, reached(target), rows, not at_rest)


def _start_again(deployment: Deployment, progress: Progress, *, at_rest: bool) -> None:
    """Leave the connector as it was found."""
    name = deployment.pipeline.connector.name
    if at_rest:
        progress(f"connector {name} was not running before: it stays STOPPED, start it with `outbox resume`")
        return
    progress(f"resume connector {name}")
    deployment.connect.resume(name)
    wait_running(deployment)


def _target(deployment: Deployment, positions: Positions, lock: Lock, source: Path | None) -> dict[str, Any]:
    """The offset to write."""
    if source is not None:
        return offset_backup.read(source, deployment, lock)
    if positions.confirmed is None:
        msg = "refuse_other_source() comes first"
        raise ValueError(msg)
    return connect_state.seed(positions.confirmed)


def _write(deployment: Deployment, actual: ActualConnector, target: dict[str, Any], progress: Progress) -> None:
    """Replace every offset: those of another prefix would pass for the connector's position."""
    name, own = deployment.pipeline.connector.name, {"server": deployment.pipeline.prefix}
    if any(entry["partition"] != own for entry in actual.offsets):
        deployment.connect.delete_offsets(name)
    progress(f"set the position of connector {name}")
    deployment.connect.patch_offsets(name, own, target)
    written = [entry for entry in deployment.connect.offsets(name) if entry["partition"] == own]
    if [reached(entry["offset"]) for entry in written] != [reached(target)]:
        raise RefusedError(
            f"connector {name!r} does not keep the position that it was given", "it is STOPPED; run the command again"
        )


def _wait_slot_free(deployment: Deployment) -> None:
    """A worker gives the slot up a moment after its task has ended."""
    slot = deployment.pipeline.source.slot
    with postgres_client.connected(deployment.environment.source) as connection:
        wait_for(
            f"slot {slot} to be given up",
            _free(lambda: postgres_positions.positions(connection, slot)),
            seconds=SLOT_TIMEOUT_S,
            hint="another client may be reading it: see pg_stat_replication",
        )


def _free(look: Callable[[], dict[str, Any]]) -> Callable[[], Seen[bool]]:
    def seen() -> Seen[bool]:
        row = look()
        return Seen(None if row["active"] else True, f"active, pid {row['active_pid']}")

    return seen
