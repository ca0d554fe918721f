"""Show, export and reset a connector's offset.

A reset accepts only an LSN between the slot's confirmed LSN and the server's LSN. The slot no longer serves WAL
before its confirmed LSN. If the LSN were beyond the server's, PostgreSQL would skip all rows up to that LSN. The effect
of a reset is reported before any change.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outbox_events.contract import lsn
from outbox_events.errors import RefusedError
from outbox_events.text import format_size
from outbox_kit.connect import lifecycle as connect_lifecycle
from outbox_kit.connect.offset_seeding import highest_lsn, seed
from outbox_kit.connect.state import ActualConnector
from outbox_kit.deployment import Deployment, refuse_protected
from outbox_kit.deployment.lag import Positions, read_positions
from outbox_kit.deployment.preconditions import require_connector, require_unchanged_source
from outbox_kit.operations import offset_backup
from outbox_kit.operations.lifecycle import wait_running
from outbox_kit.pipeline import Lock
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres.count_undelivered import count_between
from outbox_kit.postgres.replication_slot import wait_inactive
from outbox_kit.results import Reporter
from outbox_kit.results.repair_commands import RECOVER_HINT, RESEND_HINT


@dataclass(frozen=True)
class OffsetChange:
    """LSN of the connector's offset before and after a reset, and the slot's confirmed LSN, as numbers."""

    before: int | None
    after: int
    confirmed: int

    @property
    def lsn_range(self) -> tuple[int, int]:
        """LSNs before and after the reset, the lower one first. A missing offset counts as the slot's confirmed LSN."""
        before = self.confirmed if self.before is None else self.before
        return min(before, self.after), max(before, self.after)

    @property
    def rows_countable(self) -> bool:
        """Whether the slot still retains all WAL between the two LSNs, so that the rows can be counted."""
        return self.lsn_range[0] >= self.confirmed

    @property
    def skips_rows(self) -> bool:
        """Whether the reset increases the LSN, so that the connector skips the rows between the two LSNs."""
        return self.after > (self.confirmed if self.before is None else self.before)

    def describe(self, rows: int | None) -> str:
        """Describe which rows are sent again or lost. `rows` is the number of these rows; None if unknown."""
        start, end = self.lsn_range
        if start == end:
            return "no row is sent again, and no row is lost"
        count_text = "an unknown number of outbox rows" if rows is None else f"{rows} outbox rows"
        size = format_size(end - start)
        rows_in_range = f"{count_text} in {size} of WAL between {lsn.format_lsn(start)} and {lsn.format_lsn(end)}"
        if self.skips_rows:
            return f"{rows_in_range} are SKIPPED: the connector never receives them; run {RESEND_HINT}"
        return f"{rows_in_range} are sent again, with the same event_id, which changes no state"


@dataclass(frozen=True)
class ResetResult:
    """Result of a reset: the offset's LSNs, and how many `rows` are skipped or sent again (None if unknown)."""

    backup: Path
    before: int | None
    after: int
    rows: int | None
    resumed: bool


def show(deployment: Deployment) -> Positions:
    """Return the LSNs of connector, slot and server. Raises RefusedError if the connector does not exist."""
    return read_positions(deployment, require_connector(deployment))


def export(deployment: Deployment, path: Path) -> None:
    """Write the offsets, slot position and source identity to a new file. Raises RefusedError, ConfigurationError."""
    actual = require_connector(deployment)
    positions = read_positions(deployment, actual)
    offset_backup.write(path, offset_backup.create(deployment, actual, positions, deployment.lock()))


def preview(deployment: Deployment, backup_file: Path | None, *, skip: bool = False) -> OffsetChange:
    """Return the change that a reset would make. If `backup_file` is None, the new offset is the slot's LSN.

    Raises RefusedError and ConfigurationError under the same conditions as reset().
    """
    refuse_protected(deployment)
    actual = require_connector(deployment)
    lock, _ = require_unchanged_source(deployment)
    positions = read_positions(deployment, actual)
    target_offset = _target_offset(deployment, positions, lock, backup_file)
    return validated_change(positions, highest_lsn(target_offset), skip=skip)


def reset(deployment: Deployment, backup_file: Path | None, progress: Reporter, *, skip: bool = False) -> ResetResult:
    """Stop the connector, back up its offsets, set its offset (from `backup_file`, or the slot's LSN), and resume it.

    A connector that was paused or stopped before is not resumed. `skip` accepts an offset that skips rows. If a step
    before setting the offset fails or is interrupted, the connector is resumed; after a later interruption it can stay
    STOPPED, and the command can be repeated. Raises WaitTimeoutError and RejectedError. Raises RefusedError and
    ConfigurationError before any change.
    """
    with deployment.exclusive("offsets reset", progress):
        return _reset(deployment, backup_file, progress, skip=skip)


def _reset(deployment: Deployment, backup_file: Path | None, progress: Reporter, *, skip: bool) -> ResetResult:
    name = deployment.pipeline.connector.name
    preview(deployment, backup_file, skip=skip)
    was_running = not connect_lifecycle.is_paused_or_stopped(require_connector(deployment).status)
    with connect_lifecycle.resume_on_error(deployment.connect, name, progress, was_running=was_running):
        progress(f"stop connector {name}")
        connect_lifecycle.stop(deployment.connect, name)
        with postgres_client.connected(deployment.environment.source) as connection:
            wait_inactive(connection, deployment.pipeline.source.slot)
        # The connector may have advanced between preview() and the stop.
        actual = require_connector(deployment)
        lock, _ = require_unchanged_source(deployment)
        positions = read_positions(deployment, actual)
        path = offset_backup.default_path(deployment)
        offset_backup.write(path, offset_backup.create(deployment, actual, positions, lock))
        progress(f"offsets and slot position are saved in {path}")
        target_offset = _target_offset(deployment, positions, lock, backup_file)
        change = validated_change(positions, highest_lsn(target_offset), skip=skip)
        rows = count_rows(deployment, change)
        progress(change.describe(rows))
    try:
        _write_offset(deployment, actual, target_offset, progress)
    except KeyboardInterrupt:
        if was_running:  # the repeated command finds a stopped connector, which it does not start
            progress(f"connector {name} was running before: run `outbox resume` after `outbox offsets reset`")
        raise
    if was_running:
        progress(f"resume connector {name}")
        deployment.connect.resume(name)
        wait_running(deployment)
    else:
        command = f"outbox resume{' --skip-rows' if change.skips_rows else ''}"
        progress(f"connector {name} was not running before and stays STOPPED: start it with `{command}`")
    return ResetResult(path, positions.connector, change.after, rows, was_running)


def count_rows(deployment: Deployment, change: OffsetChange) -> int | None:
    """Return the number of outbox rows that the change skips or sends again; None if the rows cannot be counted."""
    start, end = change.lsn_range
    if start == end:
        return 0
    if not change.rows_countable:
        return None
    with postgres_client.connected(deployment.environment.source) as connection:
        return count_between(connection, deployment.pipeline.source, after=start, upto=end)


def validated_change(positions: Positions, target_lsn: int, *, skip: bool) -> OffsetChange:
    """Return the OffsetChange that sets the connector's offset to `target_lsn`.

    Raises RefusedError if the LSN is below the slot's or beyond the server's, or if it skips rows and `skip` is False.
    """
    if positions.confirmed is None:
        raise RefusedError("the slot does not exist", RECOVER_HINT)
    if target_lsn < positions.confirmed:
        raise RefusedError(
            f"{lsn.describe(target_lsn)} is below the slot's confirmed LSN {lsn.describe(positions.confirmed)}: "
            "PostgreSQL would start at the slot's LSN instead",
            f"omit --from to start at the slot's LSN; to send the states of older rows again, run {RESEND_HINT}",
        )
    if target_lsn > positions.server:
        raise RefusedError(
            f"{lsn.describe(target_lsn)} is beyond the server's LSN {lsn.describe(positions.server)}: PostgreSQL "
            "would skip every row up to this LSN without an error",
            "omit --from: the backup is from another server, or from this server before a restore",
        )
    change = OffsetChange(positions.connector, target_lsn, positions.confirmed)
    if change.skips_rows and not skip:
        raise RefusedError(
            f"{lsn.describe(target_lsn)} is ahead of the connector's offset {lsn.describe(positions.connector)}: "
            "the connector would never receive the outbox rows between these LSNs",
            f"add --skip-rows to skip these rows, then run {RESEND_HINT}",
        )
    return change


def _target_offset(
    deployment: Deployment, positions: Positions, lock: Lock, backup_file: Path | None
) -> dict[str, Any]:
    if backup_file is not None:
        return offset_backup.read(backup_file, deployment, lock)
    if positions.confirmed is None:
        raise ValueError("the slot does not exist: require_unchanged_source() must be called first")
    return seed(positions.confirmed)


def _write_offset(deployment: Deployment, actual: ActualConnector, offset: dict[str, Any], progress: Reporter) -> None:
    """Set the offset. First delete offsets under other topic prefixes, so that the new offset is the only one."""
    name, partition = deployment.pipeline.connector.name, {"server": deployment.pipeline.prefix}
    if any(entry["partition"] != partition for entry in actual.offsets):
        deployment.connect.delete_offsets(name)
    progress(f"set the offset of connector {name}")
    deployment.connect.patch_offsets(name, partition, offset)
    written_entries = [entry for entry in deployment.connect.offsets(name) if entry["partition"] == partition]
    if [highest_lsn(entry["offset"]) for entry in written_entries] != [highest_lsn(offset)]:
        raise RefusedError(
            f"Connect does not return the offset that was set for connector {name!r}",
            "run `outbox offsets reset` again; until then the connector stays STOPPED",
        )
