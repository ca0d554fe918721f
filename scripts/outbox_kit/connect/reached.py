"""How far an offset of Debezium's reaches."""

from __future__ import annotations

from typing import Any

POSITIONS = ("lsn", "lsn_proc", "lsn_commit")


def reached(offset: dict[str, Any] | None) -> int:
    """The farthest LSN of an offset, in bytes; 0 without one.

    Debezium confirms `lsn_commit` to the slot. `lsn` is that of the last message, which of concurrent transactions may
    lie before another one's commit (PostgresStreamingChangeEventSource.commitOffset, 3.7): by it alone the slot would
    seem to be beyond its connector.
    """
    return max((int((offset or {}).get(key) or 0) for key in POSITIONS), default=0)
