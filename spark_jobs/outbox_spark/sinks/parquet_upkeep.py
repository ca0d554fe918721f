"""Which old snapshots of a Parquet table may go."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise

from outbox_spark.parquet_reader import POINTERS, number_of
from outbox_spark.sinks.parquet_files import PENDING, Entry, Files

SNAPSHOT_PREFIX = "snapshot-"
KEPT_SNAPSHOTS = 2
"""The current one and the one before stay, however old they are."""
KEPT_TIME = timedelta(hours=24)
"""How long a snapshot stays after the next one, for readers that began before."""


def maintain(files: Files, now: datetime) -> str:
    """Remove pointers whose time is over, then the folders that no pointer names; says how many."""
    limit = (now - KEPT_TIME).timestamp()
    pointers = [entry for entry in files.entries(POINTERS) if number_of(entry.name) is not None]
    over = _superseded_before(pointers, limit)
    kept = [entry for entry in pointers if entry not in over]
    # First the pointers: none may name a folder that is gone.
    for entry in over:
        files.remove(f"{POINTERS}/{entry.name}")
    named = {name.split("/")[0] for entry in kept for name in _folders(files, entry)}
    removed = 0
    for entry in files.entries():
        # What no pointer names may belong to a run that is still writing it.
        if (
            entry.name.startswith(SNAPSHOT_PREFIX)
            and entry.name not in named
            and max(entry.modified, files.newest_change(entry.name)) < limit
        ):
            files.remove(entry.name)
            removed += 1
    for entry in files.entries(PENDING):
        if entry.modified < limit:
            files.remove(f"{PENDING}/{entry.name}")
    return f"{len(over)} snapshots ended, {removed} folders removed; {len(kept)} snapshots kept"


def _superseded_before(pointers: Sequence[Entry], limit: float) -> list[Entry]:
    """Pointers whose successor is older than `limit`, without the last ones. In the order of their numbers."""
    over = [entry for entry, successor in pairwise(pointers) if successor.modified < limit]
    return [entry for entry in over if entry not in pointers[-KEPT_SNAPSHOTS:]]


def _folders(files: Files, pointer: Entry) -> tuple[str, str]:
    found = files.read(f"{POINTERS}/{pointer.name}")
    return found["rows"], found["tombstones"]
