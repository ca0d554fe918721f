"""The snapshots of an Iceberg table, and the progress in their summaries. Tables and snapshots are Java objects."""

from __future__ import annotations

import json
from typing import Any

from outbox_spark.sinks.lake.table import PROGRESS_KEY


def progress_in(snapshot: Any) -> dict[str, Any] | None:  # noqa: ANN401
    """Return the progress in a snapshot; None in snapshots of other jobs."""
    text = snapshot.summary().get(PROGRESS_KEY)
    return None if text is None else json.loads(text)


def latest_with_progress(table: Any) -> Any:  # noqa: ANN401
    """Return the latest snapshot with progress among the current snapshot and its ancestors, or None."""
    snapshot = table.currentSnapshot()
    while snapshot is not None and progress_in(snapshot) is None:
        parent = snapshot.parentId()
        snapshot = None if parent is None else table.snapshot(parent)
    return snapshot


def was_rolled_back(table: Any, latest: Any) -> bool:  # noqa: ANN401
    """Return whether the table was rolled back to `latest` from a later snapshot with progress.

    The table's history lists the snapshots that have been current; a rollback appends the older snapshot again.
    """
    history = table.history()
    ids = [entry.snapshotId() for entry in history]
    index = len(ids) - 1 - ids[::-1].index(latest.snapshotId()) if latest.snapshotId() in ids else 0
    for snapshot_id in reversed(ids[:index]):
        snapshot = table.snapshot(snapshot_id)
        if snapshot is None or snapshot.sequenceNumber() <= latest.sequenceNumber():
            return False
        if progress_in(snapshot) is not None:
            return True
    return False
