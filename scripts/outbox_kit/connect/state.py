"""The connector as the files want it, as Connect has it, and the difference."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from outbox_kit.changes import Change
from outbox_kit.connect.client import ConnectClient, ConnectorStatus
from outbox_kit.errors import RECOVER, RefusedError
from outbox_kit.pipeline import UNKNOWN, Lock

EPOCH_KEY = "transforms.outbox.source.epoch"
# What some distributions answer instead of the stored value of a password, even of a placeholder.
MASK = re.compile(r"^(\*+|•+|\[hidden\])$")
# Added by the worker to what it was given.
SERVER_KEYS = frozenset({"name"})


CLASS_KEYS = re.compile(r"connector\.class|transforms\.[^.]+\.type|(key|value|header)\.converter")
INSTALL = "install it under the worker's plugin.path and restart the worker; see docs/smt.md"


def missing_plugins(config: dict[str, str], installed: list[str]) -> list[str]:
    """Classes of connector, transforms and converters that the config names and the worker does not list."""
    keys = [key for key in config if CLASS_KEYS.fullmatch(key)]
    return sorted({config[key] for key in keys} - set(installed))


@dataclass(frozen=True)
class ActualConnector:
    """The connector as Connect has it; `config` is None where there is none."""

    config: dict[str, str] | None
    status: ConnectorStatus | None
    offsets: list[dict[str, Any]]


def read_actual(client: ConnectClient, name: str) -> ActualConnector:
    """Config, status and offsets of one connector."""
    config = client.config(name)
    if config is None:
        return ActualConnector(None, None, [])
    return ActualConnector(config, client.status(name), client.offsets(name))


def never_ran(actual: ActualConnector) -> bool:
    """Whether an apply died between creating the connector and resuming it: stopped, with no offset or a seed.

    A connector that somebody stopped later has an offset of Debezium's own, and stays stopped.
    """
    if actual.status is None or actual.status.connector != "STOPPED":
        return False
    return all(_is_seed(entry["offset"]) for entry in actual.offsets)


def _is_seed(offset: dict[str, Any] | None) -> bool:
    return offset is None or (offset.keys() == {"lsn", "lsn_proc", "lsn_commit"} and len(set(offset.values())) == 1)


def position(actual: ActualConnector) -> int:
    """The LSN that the connector stands at, as a number; 0 without one."""
    return max((entry["offset"].get("lsn") or 0 for entry in actual.offsets if entry["offset"]), default=0)


def epoch(config: dict[str, str] | None) -> int:
    """The source epoch that a live config writes; 0 where there is none."""
    value = (config or {}).get(EPOCH_KEY, "0")
    return int(value) if value.isdecimal() else 0


def refuse_position(name: str, actual: ActualConnector, lock: Lock | None, wal_position: int) -> None:
    """Stop where the connector's position does not fit the lock file or the server.

    Debezium itself starts at a position that the server has not reached yet, and PostgreSQL then skips every
    transaction up to it without a word. Raises RefusedError.
    """
    reached = position(actual)
    if reached and (lock is None or lock.source is None):
        raise RefusedError(
            f"connector {name!r} has a position, but the lock file does not know its slot",
            f"restore the lock file from version control; if it is lost: {RECOVER}",
        )
    if reached > wal_position:
        raise RefusedError(
            f"connector {name!r} stands at {reached}, the server only at {wal_position}: it was restored or promoted "
            "without its last WAL, and rows would be skipped in silence",
            RECOVER,
        )


def refuse_epoch(name: str, actual: ActualConnector, lock: Lock | None, *, raised: bool) -> None:
    """Stop where the lock file's epoch is below the live one, or, when it was to be `raised`, not above it.

    Raises RefusedError.
    """
    live, locked = epoch(actual.config), lock.source_epoch if lock else 1
    if live > locked or (raised and live == locked):
        raise RefusedError(
            f"connector {name!r} writes source epoch {live}, the lock file is behind it: every sink would ignore new "
            "states as older",
            "restore the lock file from version control",
        )


def seed_offset(slot_lsn: str) -> dict[str, int]:
    """Debezium's offset that stands for a slot position, given as PostgreSQL writes it (`16/B374D848`)."""
    high, low = slot_lsn.split("/")
    lsn = (int(high, 16) << 32) + int(low, 16)
    return {"lsn": lsn, "lsn_proc": lsn, "lsn_commit": lsn}


def different_keys(desired: dict[str, str], actual: dict[str, str]) -> list[str]:
    """Keys whose values differ; a masked or not yet known value is no difference."""
    keys = sorted((desired.keys() | actual.keys()) - SERVER_KEYS)
    return [key for key in keys if _differs(desired.get(key), actual.get(key))]


def _differs(desired: str | None, actual: str | None) -> bool:
    if actual is not None and MASK.match(actual):
        return desired is None
    return desired not in (actual, UNKNOWN)


def diff(name: str, desired: dict[str, str], actual: ActualConnector, unfinished: str | None = None) -> list[Change]:
    """Create the connector, bring its config up to date, or finish what an interrupted apply began.

    `unfinished` is the lock file's word on what the connector was stopped for.
    """
    if actual.config is None:
        return [Change("connect", f"connector {name}", "create", "reads the slot, writes the topics")]
    changes = []
    # First, because it stops the connector: under its old position it must not run again.
    if unfinished == "recover":
        changes.append(Change("connect", f"offsets {name}", "update", "the slot is another one"))
    keys = different_keys(desired, actual.config)
    if keys:
        after = f"changed: {', '.join(keys)}"
        changes.append(Change("connect", f"connector {name}", "update", "restarts the task", "", after))
    stopped = actual.status is not None and actual.status.connector == "STOPPED"
    if unfinished == "recover" or (stopped and unfinished) or never_ran(actual):
        changes.append(Change("connect", f"start {name}", "create", "an apply was interrupted, or is recovering"))
    return changes
