"""The connector as the files want it, as Connect has it, and the difference."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal

from outbox_kit import lsn
from outbox_kit.changes import Change
from outbox_kit.connect.client import ConnectClient, ConnectorStatus, LiveConnector
from outbox_kit.connect.config_diff import FINGERPRINT_KEY, compare, different_keys, was_edited
from outbox_kit.connect.conflicts import orphans
from outbox_kit.connect.offset_seeding import reached
from outbox_kit.errors import RECOVER, RefusedError
from outbox_kit.pipeline import Lock

__all__ = ["ActualConnector", "diff", "different_keys", "read_actual"]

State = Literal["running", "paused", "stopped"]
EPOCH_KEY = "transforms.outbox.source.epoch"
# Keys whose change leaves something behind, and what.
DANGERS = (
    (re.compile(r"topic\.prefix"), "consumers must move to the new topics; the position is kept by prefix"),
    (re.compile(r"slot\.name"), "what the old slot still holds is not read"),
    (re.compile(r"database\.(hostname|port|dbname)"), "another database has other positions"),
    (re.compile(r".*\.table\.field\.event\.key"), "records get other keys: what is on the topics is never compacted"),
    (re.compile(r".*\.partition\.field"), "keys move to other partitions: tombstones miss the old ones"),
)
CLASS_KEYS = re.compile(
    r"connector\.class|(transforms|predicates)\.[^.]+\.type|(key|value|header)\.converter(\.delegate\.converter\.type)?"
)
INSTALL = "install it under the worker's plugin.path and restart the worker; see docs/smt.md"


def missing_plugins(config: dict[str, str], installed: list[str]) -> list[str]:
    """Classes that the config names, of connector, transforms, predicates, converters, and the worker does not list."""
    keys = [key for key in config if CLASS_KEYS.fullmatch(key)]
    return sorted({config[key] for key in keys} - set(installed))


@dataclass(frozen=True)
class ActualConnector:
    """The connector as Connect has it, and the cluster's other ones; `config` is None where there is none."""

    config: dict[str, str] | None
    status: ConnectorStatus | None
    offsets: list[dict[str, Any]]
    others: dict[str, LiveConnector] = field(default_factory=dict)


def read_actual(client: ConnectClient, name: str) -> ActualConnector:
    """The connector, and those beside it, in a number of calls that does not grow with their number."""
    others = client.all_connectors()
    live = others.pop(name, None)
    # The listing leaves out one that was made a moment ago and has no status yet.
    config = live.config if live else client.config(name)
    if config is None:
        return ActualConnector(None, None, [], others)
    return ActualConnector(config, live.status if live else None, client.offsets(name), others)


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
    """The LSN that the connector stands at, as a number; 0 without one.

    What Connect has of it under another topic.prefix than the live one counts for nothing: Debezium does not find it.
    """
    prefix = (actual.config or {}).get("topic.prefix")
    own = [entry["offset"] for entry in actual.offsets if prefix in (None, entry["partition"].get("server"))]
    return max(map(reached, own), default=0)


def epoch(config: dict[str, str] | None) -> int:
    """The source epoch that a live config writes; 0 where there is none."""
    value = (config or {}).get(EPOCH_KEY, "0")
    return int(value) if value.isdecimal() else 0


def refuse_position(name: str, actual: ActualConnector, lock: Lock | None, wal_position: int) -> None:
    """Stop where the connector's position does not fit the lock file or the server.

    Debezium itself starts at a position that the server has not reached yet, and PostgreSQL then skips every
    transaction up to it without a word. Raises RefusedError.
    """
    stands_at = position(actual)
    if stands_at and (lock is None or lock.source is None):
        raise RefusedError(
            f"connector {name!r} has a position, but the lock file does not know its slot",
            f"restore the lock file from version control; if it is lost: {RECOVER}",
        )
    if stands_at > wal_position:
        raise RefusedError(
            f"connector {name!r} stands at {stands_at}, the server only at {wal_position}: it was restored or promoted "
            "without its last WAL, and rows would be skipped in silence",
            RECOVER,
        )


def refuse_passed(name: str, slot: str, stands_at: int | None, confirmed: int | None) -> None:
    """Stop where the slot's confirmed position is beyond where the connector `stands_at`, in bytes.

    A slot only moves to what the connector has confirmed, after its offset was kept; one that is further was moved by
    somebody else. `stands_at` must be read after `confirmed`: both move while the connector runs. Raises RefusedError.
    """
    if stands_at and confirmed is not None and confirmed > stands_at:
        raise RefusedError(
            f"slot {slot!r} stands at {lsn.both(confirmed)}, beyond connector {name!r} at {lsn.both(stands_at)}: it "
            "was made anew, advanced, or is read by somebody else, and rows in between are lost to this connector",
            f"find out who reads the slot (pg_stat_replication); then {RECOVER}",
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
    return seed((int(high, 16) << 32) + int(low, 16))


def seed(lsn: int) -> dict[str, int]:
    """Debezium's offset that stands for a position, given in bytes."""
    return {"lsn": lsn, "lsn_proc": lsn, "lsn_commit": lsn}


def diff(
    name: str,
    desired: dict[str, str],
    actual: ActualConnector,
    unfinished: str | None = None,
    *,
    state: State = "running",
) -> list[Change]:
    """Create the connector, bring config and state up to date, or finish what an interrupted apply began.

    `unfinished` is the lock file's word on what the connector was stopped for, `state` the declared one. The kit's own
    keys count where `desired` has them (see with_fingerprint).
    """
    changes = [_removal(other, name) for other in orphans(name, desired, actual.others)]
    if actual.config is None:
        why = "reads the slot, writes the topics"
        return [*changes, Change("connect", f"connector {name}", "create", why, after=_created(state))]
    # Before all others, because it stops the connector: under its old position it must not run again.
    if unfinished == "recover":
        changes.append(Change("connect", f"offsets {name}", "update", "the slot is another one"))
    changes += _config_changes(name, desired, actual.config)
    if unfinished == "recover" or _was_interrupted(actual, unfinished, state):
        why = "an apply was interrupted, or is recovering" if unfinished else "it was made, and has never run"
        changes.append(Change("connect", f"start {name}", "create", why, after=_created(state)))
    elif actual.status and not is_in(state, actual.status):
        why = f"the files say {state}"
        changes.append(Change("connect", f"state {name}", "update", why, actual.status.connector, state.upper()))
    return changes


def is_in(state: State, status: ConnectorStatus) -> bool:
    """Whether the connector is in the declared state. One that FAILED, or waits for its worker, is not halted."""
    if state == "running":
        return status.connector not in ("PAUSED", "STOPPED")
    return status.connector == state.upper()


def _created(state: State) -> str:
    return "" if state == "running" else f"left {state.upper()}"


def _removal(other: str, name: str) -> Change:
    danger = f"{other} stops for good; its position stays behind, {name} takes the slot's"
    return Change("connect", f"connector {other}", "delete", f"this pipeline's connector is now {name}", danger=danger)


def _config_changes(name: str, desired: dict[str, str], live: dict[str, str]) -> list[Change]:
    found = compare(desired, live)
    if not any(not change.unknown for change in found):
        return []
    # The fingerprint follows from the rest: it is worth a word only where nothing else says why it differs.
    shown = [change for change in found if change.key != FINGERPRINT_KEY] or found
    dangers = [words for key, words in DANGERS if any(key.fullmatch(change.key) for change in found)]
    return [
        Change(
            "connect",
            f"connector {name}",
            "update",
            _why(desired, live),
            after="; ".join(change.words for change in shown),
            danger="; ".join(dangers),
        )
    ]


def _why(desired: dict[str, str], live: dict[str, str]) -> str:
    if FINGERPRINT_KEY in desired and FINGERPRINT_KEY not in live:
        return "carries no fingerprint: made or edited by something else; restarts the task"
    if was_edited(live) or (FINGERPRINT_KEY in live and live[FINGERPRINT_KEY] == desired.get(FINGERPRINT_KEY)):
        return "was edited behind the kit's back; restarts the task"
    return "restarts the task"


def _was_interrupted(actual: ActualConnector, unfinished: str | None, state: State) -> bool:
    stopped = actual.status is not None and actual.status.connector == "STOPPED"
    if state == "stopped":
        # It is where it is to be, and lacks at most the position that a later resume starts from.
        return stopped and never_ran(actual) and not any(entry["offset"] for entry in actual.offsets)
    return (stopped and unfinished is not None) or never_ran(actual)
