"""What a LatestState reports about itself, and the error with which it refuses to return an old state."""

from __future__ import annotations

from dataclasses import dataclass

from outbox_events.errors import OutboxError


class StaleStateError(OutboxError):
    """The state is not known to be the latest one, so that it is not returned."""


@dataclass(frozen=True)
class StateStatus:
    """Counts and times of a LatestState."""

    is_loaded: bool
    """Whether the topic has been read to its end, since the start or since the last rebuild."""
    is_following: bool
    keys: int
    tombstones: int
    """Deleted keys whose version is still kept."""
    undecodable: int
    """Keys whose newest record could not be decoded when it was requested, or has no valid source_sequence."""
    ignored: int
    """Records that were older than the state of their key."""
    rebuilds: int
    """Number of times that the topic was read from its beginning again."""
    unread: int
    """Offsets between the positions and the ends of the partitions at the last check."""
    seconds_behind: float | None
    """Everything written before this many seconds ago has been read; None if the end has not been reached yet."""
    error: str
    """Last error of the background thread; empty if its last check succeeded."""
