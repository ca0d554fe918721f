"""Ensure that a stopped connector has a usable source offset: keep the stored offset, or write the slot's LSN."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from outbox_kit.connect.client import ConnectClient
from outbox_kit.connect.write_requests import write_confirmed
from outbox_kit.results import Reporter

LSN_KEYS = ("lsn", "lsn_proc", "lsn_commit")


@dataclass(frozen=True)
class StartPosition:
    """Start position of a connector: the topic prefix under which its offsets are stored, and the slot's confirmed LSN.

    `wal_position` is the server's LSN; None if unknown. `ignore_stored_offset` is set if the stored offset was written
    for another slot or database, or by a deleted connector. `record_gap` is called before the slot's LSN replaces an
    earlier stored offset, if rows in between are not sent. LSNs are integers.
    """

    prefix: str
    slot_lsn: int
    wal_position: int | None = None
    ignore_stored_offset: bool = False
    record_gap: Callable[[], None] = lambda: None


def seed(lsn: int) -> dict[str, int]:
    """Return the Debezium offset for an LSN."""
    return dict.fromkeys(LSN_KEYS, lsn)


def is_absent_or_seed(offset: dict[str, Any] | None) -> bool:
    """Return whether an offset is absent or was made by seed(). Offsets that Debezium writes have more keys."""
    return offset is None or (offset.keys() == set(LSN_KEYS) and len(set(offset.values())) == 1)


def offset_of_prefix(offsets: list[dict[str, Any]], prefix: str) -> dict[str, Any] | None:
    """Return the offset that is stored under this topic prefix. Debezium ignores offsets under other prefixes."""
    return next((entry.get("offset") for entry in offsets if entry.get("partition") == {"server": prefix}), None)


def highest_lsn(offset: dict[str, Any] | None) -> int:
    """Return the highest LSN in an offset; 0 if the offset is absent.

    Debezium confirms `lsn_commit` to the slot. `lsn`, the LSN of the last event, can be lower than `lsn_commit` if
    transactions are concurrent (PostgresStreamingChangeEventSource.commitOffset, 3.7).
    """
    return max(int((offset or {}).get(key) or 0) for key in LSN_KEYS)


def ensure_offset(
    client: ConnectClient, name: str, start: StartPosition, progress: Reporter, *, was_stopped: bool
) -> None:
    """Write the slot's LSN as the offset of a stopped connector unless its stored offset is usable.

    Connect keeps the offsets of a deleted connector for the next connector of that name. If the offset is below the
    slot's LSN, the task fails; if it is beyond the server's LSN, PostgreSQL silently skips all rows up to the offset.
    The server's LSN is compared only if it was read after the connector stopped (`was_stopped`).
    """
    offset = offset_of_prefix(client.offsets(name), start.prefix)
    if offset == seed(start.slot_lsn):
        return
    reason = _reason_unusable(offset, start, was_stopped=was_stopped)
    if offset and not reason:
        return
    if offset:
        lsn = highest_lsn(offset)
        progress(f"set the offset of connector {name} from LSN {lsn} to the slot's LSN {start.slot_lsn}: {reason}")
        if lsn < start.slot_lsn:
            start.record_gap()
    write_offset(client, name, start.prefix, seed(start.slot_lsn), progress)


def write_offset(client: ConnectClient, name: str, prefix: str, offset: dict[str, Any], progress: Reporter) -> None:
    """Replace the offset of a stopped connector, and confirm that Connect has it."""
    write_confirmed(
        f"write the offset of connector {name}",
        lambda: client.patch_offsets(name, {"server": prefix}, offset),
        lambda: offset_of_prefix(client.offsets(name), prefix) == offset,
        progress,
    )


def _reason_unusable(offset: dict[str, Any] | None, start: StartPosition, *, was_stopped: bool) -> str:
    """Return why the connector must not start at this offset; an empty text if the offset is usable."""
    lsn = highest_lsn(offset)
    if start.ignore_stored_offset and was_stopped:
        return "the stored offset is from an earlier slot or connector"
    if lsn < start.slot_lsn:
        return "the stored LSN is before the slot's LSN"
    if was_stopped and start.wal_position is not None and lsn > start.wal_position:
        return f"the stored LSN is beyond the server's LSN {start.wal_position}"
    return ""
