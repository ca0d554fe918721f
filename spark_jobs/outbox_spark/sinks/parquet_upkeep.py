"""Which old snapshots of a Parquet table may go."""

from __future__ import annotations

from collections.abc import Sequence, Set
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
    named = {path for entry in kept for path in _folders(files, entry)}
    removed = sum(_clean(files, entry, named, limit) for entry in _snapshots(files))
    for entry in files.entries(PENDING):
        if entry.modified < limit:
            files.remove(f"{PENDING}/{entry.name}")
    return f"{len(over)} snapshots ended, {removed} folders removed; {len(kept)} snapshots kept"


def _snapshots(files: Files) -> list[Entry]:
    return [entry for entry in files.entries() if entry.name.startswith(SNAPSHOT_PREFIX)]


def _clean(files: Files, snapshot: Entry, named: Set[str], limit: float) -> int:
    """Remove rows or ledger of a snapshot, unless a pointer names them (a later one can, when nothing had changed), or
    a run may still be writing them."""
    parts = files.entries(snapshot.name)
    over = [part for part in parts if _is_over(files, f"{snapshot.name}/{part.name}", part, named, limit)]
    for part in over:
        files.remove(f"{snapshot.name}/{part.name}")
    if len(over) == len(parts) and snapshot.modified < limit:
        files.remove(snapshot.name)
    return len(over)


def _is_over(files: Files, path: str, part: Entry, named: Set[str], limit: float) -> bool:
    return path not in named and max(part.modified, files.newest_change(path)) < limit


def _superseded_before(pointers: Sequence[Entry], limit: float) -> list[Entry]:
    """Pointers whose successor is older than `limit`, without the last ones. In the order of their numbers."""
    over = [entry for entry, successor in pairwise(pointers) if successor.modified < limit]
    return [entry for entry in over if entry not in pointers[-KEPT_SNAPSHOTS:]]


def _folders(files: Files, pointer: Entry) -> tuple[str, str]:
    found = files.read(f"{POINTERS}/{pointer.name}")
    return found["rows"], found["tombstones"]
