"""The position from which a stopped connector will read: its own, where that can be used, or else the slot's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from outbox_kit.connect.client import ConnectClient
from outbox_kit.connect.confirmed_writes import confirmed
from outbox_kit.progress import Progress

POSITIONS = ("lsn", "lsn_proc", "lsn_commit")


@dataclass(frozen=True)
class Start:
    """Where a connector may start: Debezium's offsets under `prefix`, the slot's position as a `seed`.

    `wal_position` is the server's, in bytes; None where it is not known. With `fresh` no position that Connect kept is
    believed: it was written for another slot or database, or by a connector that was deleted.
    """

    prefix: str
    seed: dict[str, int]
    wal_position: int | None = None
    fresh: bool = False


def own_offset(offsets: list[dict[str, Any]], prefix: str) -> dict[str, Any] | None:
    """The offset under this prefix: one under another Debezium does not find."""
    return next((entry["offset"] for entry in offsets if entry["partition"] == {"server": prefix}), None)


def reached(offset: dict[str, Any] | None) -> int:
    """The farthest LSN of an offset, in bytes; 0 without one.

    Debezium confirms `lsn_commit` to the slot. `lsn` is that of the last message, which of concurrent transactions may
    lie before another one's commit (PostgresStreamingChangeEventSource.commitOffset, 3.7): by it alone the slot would
    seem to be beyond its connector.
    """
    return max((int((offset or {}).get(key) or 0) for key in POSITIONS), default=0)


def ensure(client: ConnectClient, name: str, start: Start, progress: Progress, *, halted: bool = False) -> None:
    """Give a stopped connector the slot's position, unless it has one that can be used.

    What is before the slot's confirmed position Kafka has. Connect keeps the offsets of a deleted connector for the
    next one of its name: from before the slot the task fails, from beyond the server PostgreSQL skips every row up to
    there in silence. The server's position is held against an offset only where it was read after the connector was
    `halted`.
    """
    found = own_offset(client.offsets(name), start.prefix)
    if found == start.seed:
        return
    why = unusable(found, start, halted=halted)
    if found and not why:
        return
    if found:
        progress(f"connector {name} takes the slot's position {reached(start.seed)}, not {reached(found)}: {why}")
    write = lambda: client.patch_offsets(name, {"server": start.prefix}, start.seed)  # noqa: E731
    happened = lambda: own_offset(client.offsets(name), start.prefix) == start.seed  # noqa: E731
    confirmed(f"seed the offsets of {name}", write, happened, progress)


def unusable(offset: dict[str, Any] | None, start: Start, *, halted: bool) -> str:
    """Why the connector must not start at this offset, in words; empty: it may."""
    if start.fresh and halted:
        return "Connect kept it of an earlier connector"
    if reached(offset) < reached(start.seed):
        return "it is before the slot's"
    if halted and start.wal_position is not None and reached(offset) > start.wal_position:
        return f"the server is only at {start.wal_position}"
    return ""
