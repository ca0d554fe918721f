"""Compare the desired with the actual state of the connector, and return the changes that are needed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

from outbox_events.contract import lsn
from outbox_events.errors import RefusedError
from outbox_kit.connect.client import ConnectClient, ConnectorStatus, LiveConnector
from outbox_kit.connect.config_diff import FINGERPRINT_KEY, compare, was_edited
from outbox_kit.connect.conflicts import orphans
from outbox_kit.connect.offset_seeding import highest_lsn, is_absent_or_seed
from outbox_kit.connect.preconditions import config_dangers
from outbox_kit.pipeline import Lock
from outbox_kit.results.changes import Change
from outbox_kit.results.repair_commands import APPLY_RECOVER_HINT, RECOVER_HINT

State = Literal["running", "paused", "stopped"]
EPOCH_KEY = "transforms.outbox.source.epoch"
CLASS_KEYS = re.compile(
    r"connector\.class|(transforms|predicates)\.[^.]+\.type|(key|value|header)\.converter(\.delegate\.converter\.type)?"
)
INSTALL_HINT = "install the missing plugins under plugin.path of every worker and restart the workers; see docs/smt.md"
RESTORE_LOCK_HINT = "restore the lock file from version control (first check -p and -e)"
LOST_LOCK_HINT = f"{RESTORE_LOCK_HINT}; if the file is lost, {APPLY_RECOVER_HINT}"


def missing_plugins(config: dict[str, str], installed_classes: list[str]) -> list[str]:
    """Return the connector, transform, predicate and converter classes in the config that are not installed."""
    return sorted({value for key, value in config.items() if CLASS_KEYS.fullmatch(key)} - set(installed_classes))


@dataclass(frozen=True)
class ActualConnector:
    """Live state of the connector (`config` is None if it does not exist), and the other connectors in the cluster."""

    config: dict[str, str] | None
    status: ConnectorStatus | None
    offsets: list[dict[str, Any]]
    other_connectors: dict[str, LiveConnector] = field(default_factory=dict)


def read_actual(client: ConnectClient, name: str) -> ActualConnector:
    """Read the connector with its offsets, and the other connectors."""
    actual = read_without_offsets(client, name)
    return actual if actual.config is None else replace(actual, offsets=client.offsets(name))


def read_without_offsets(client: ConnectClient, name: str) -> ActualConnector:
    """Read the connector and the other connectors. The number of requests is constant."""
    other_connectors = client.listed_connectors()
    entry = other_connectors.pop(name, None)
    # The listing omits a new connector that has no status yet.
    config = entry.config if entry else client.config(name)
    if config is None:
        return ActualConnector(None, None, [], other_connectors)
    return ActualConnector(config, entry.status if entry else None, [], other_connectors)


def stored_lsn(actual: ActualConnector) -> int:
    """Return the highest LSN among the offsets under the connector's live topic.prefix; 0 if there are no offsets."""
    prefix = (actual.config or {}).get("topic.prefix")
    offsets = [entry["offset"] for entry in actual.offsets if prefix in (None, entry["partition"].get("server"))]
    return max(map(highest_lsn, offsets), default=0)


def epoch(config: dict[str, str] | None) -> int:
    """Return the source epoch in a connector config; 0 if the config does not contain a source epoch."""
    value = (config or {}).get(EPOCH_KEY, "0")
    return int(value) if value.isdecimal() else 0


def refuse_inconsistent_offset(name: str, actual: ActualConnector, lock: Lock | None, wal_position: int) -> None:
    """Raise RefusedError if the connector's offset is not consistent with the lock file or the server.

    Debezium accepts an LSN beyond the server's WAL, and PostgreSQL then silently skips all transactions up to this LSN.
    """
    offset_lsn = stored_lsn(actual)
    if offset_lsn and (lock is None or lock.source is None):
        message = f"connector {name!r} has an offset, but the lock file does not contain its slot"
        raise RefusedError(message, LOST_LOCK_HINT)
    if offset_lsn > wal_position:
        raise RefusedError(
            f"the offset of connector {name!r} is at LSN {offset_lsn}, but the server is only at {wal_position}: the "
            "server was restored or promoted without its last WAL, and rows would be skipped without an error",
            RECOVER_HINT,
        )


def is_beyond_offset(confirmed: int | None, offset_lsn: int | None) -> bool:
    """Return whether the slot's confirmed LSN is beyond the connector's offset; False if there is no offset (0)."""
    return bool(offset_lsn) and confirmed is not None and confirmed > (offset_lsn or 0)


def refuse_advanced_slot(name: str, slot: str, offset_lsn: int | None, confirmed: int | None) -> None:
    """Raise RefusedError if the slot's confirmed LSN is beyond the connector's offset.

    The connector confirms an LSN only after its offset was stored, so another client advanced the slot. `offset_lsn`
    must be read after `confirmed`, because both increase while the connector runs.
    """
    if is_beyond_offset(confirmed, offset_lsn):
        raise RefusedError(
            f"slot {slot!r} is at {lsn.describe(confirmed)}, beyond the offset of connector {name!r} at "
            f"{lsn.describe(offset_lsn)}: the slot was recreated, advanced, or used by another client, and the "
            "connector would skip the rows in between",
            f"check which client uses the slot (pg_stat_replication); then {RECOVER_HINT}",
        )


def refuse_lower_epoch(name: str, actual: ActualConnector, lock: Lock | None, *, increased: bool) -> None:
    """Raise RefusedError if the lock file's source epoch is below the connector's, or `increased` but only equal."""
    actual_epoch, lock_epoch = epoch(actual.config), lock.source_epoch if lock else 1
    if actual_epoch > lock_epoch or (increased and actual_epoch == lock_epoch):
        raise RefusedError(
            f"connector {name!r} writes source epoch {actual_epoch}, but would get source epoch {lock_epoch} "
            f"from the lock file, which is {'not higher' if increased else 'lower'}: sinks would ignore new states",
            LOST_LOCK_HINT,
        )


def diff(
    name: str,
    desired: dict[str, str],
    actual: ActualConnector,
    unfinished: str | None = None,
    *,
    state: State = "running",
    names: Mapping[str, str] = MappingProxyType({}),
) -> list[Change]:
    """Return the changes that bring the connector to its desired config and state.

    `unfinished` and `names` are the lock file's entries, and `state` is the declared state. OUTBOX_KIT_KEYS are
    compared if `desired` contains these keys; see with_fingerprint().
    """
    changes = []
    for orphan in orphans(name, desired, actual.other_connectors):
        danger = f"the offset of {orphan} is not used: connector {name} starts at the slot's LSN"
        reason = f"the pipeline's connector is now {name}"
        changes.append(Change("connect", "connector", orphan, "delete", reason, danger=danger))
    after = "" if state == "running" else f"left {state.upper()}"
    if actual.config is None:
        reason = "reads the slot and writes to the topics"
        return [*changes, Change("connect", "connector", name, "create", reason, after=after)]
    # The reset of the offset comes first: it stops the connector, which must not run again with its old offset.
    if unfinished == "recover":
        changes.append(Change("connect", "offsets", name, "update", "a recovery discards the stored offset"))
    accepted = names if unfinished == "recover" else None
    changes += _config_changes(name, desired, actual.config, accepted)
    if unfinished == "recover" or _was_interrupted(actual, unfinished, state):
        reason = "an apply or a recovery was interrupted" if unfinished else "the connector has not written an offset"
        changes.append(Change("connect", "start", name, "create", reason, after=after))
    elif actual.status and not is_in_state(state, actual.status):
        reason = f"connector.state of the environment file is {state}"
        changes.append(Change("connect", "state", name, "update", reason, actual.status.connector_state, state.upper()))
    return changes


def is_in_state(state: State, status: ConnectorStatus) -> bool:
    """Return whether the connector is in the declared state. FAILED and UNASSIGNED count as running."""
    if state == "running":
        return status.connector_state not in ("PAUSED", "STOPPED")
    return status.connector_state == state.upper()


def _config_changes(
    name: str, desired: dict[str, str], actual: dict[str, str], accepted: Mapping[str, str] | None
) -> list[Change]:
    differences = compare(desired, actual)
    if all(change.is_unknown for change in differences):
        return []
    # The fingerprint depends on the other keys, so it is shown only if no other key differs.
    shown_differences = [change for change in differences if change.key != FINGERPRINT_KEY] or differences
    after = "; ".join(change.text for change in shown_differences)
    danger = config_dangers(differences, desired, accepted)
    return [Change("connect", "connector", name, "update", _update_reason(desired, actual), after=after, danger=danger)]


def _update_reason(desired: dict[str, str], actual: dict[str, str]) -> str:
    if FINGERPRINT_KEY in desired and FINGERPRINT_KEY not in actual:
        return "the live config has no fingerprint, because outbox-kit did not write it; the update restarts the task"
    if was_edited(actual) or (FINGERPRINT_KEY in actual and actual[FINGERPRINT_KEY] == desired.get(FINGERPRINT_KEY)):
        return "the live config was changed outside outbox-kit; the update restarts the task"
    return "the update restarts the task"


def _was_interrupted(actual: ActualConnector, unfinished: str | None, state: State) -> bool:
    """Return whether an apply was interrupted between the creation or stop of the connector and its start.

    A connector that has never run has either no offset or a seeded offset. After a run, its offset is from Debezium.
    """
    if actual.status is None or actual.status.connector_state != "STOPPED":
        return False
    if state == "stopped":
        # A stopped connector is not started, so only the offset for a later resume can be missing.
        return not any(entry["offset"] for entry in actual.offsets)
    return unfinished is not None or all(is_absent_or_seed(entry["offset"]) for entry in actual.offsets)
