"""The snapshots of an Iceberg table, and the progress in their summaries. Tables and snapshots are Java objects."""

from __future__ import annotations

import json
from typing import Any

from outbox_spark.sinks.lake.table import PROGRESS_KEY


def progress_in(snapshot: Any) -> dict[str, Any] | None:  # noqa: ANN401
    """Return the progress in the summary of a snapshot; None if the summary has none."""
    progress_json = snapshot.summary().get(PROGRESS_KEY)
    return None if progress_json is None else json.loads(progress_json)


def latest_with_progress(table: Any) -> Any:  # noqa: ANN401
    """Return the latest snapshot with progress among the current snapshot and its ancestors, or None."""
    snapshot = table.currentSnapshot()
    while snapshot is not None and progress_in(snapshot) is None:
        parent_id = snapshot.parentId()
        snapshot = None if parent_id is None else table.snapshot(parent_id)
    return snapshot


def was_rolled_back(table: Any, latest: Any) -> bool:  # noqa: ANN401
    """Return whether the table was rolled back to `latest` from a later snapshot with progress.

    The table's history lists snapshots in the order in which they became current. A rollback appends the older one.
    """
    history = table.history()
    ids = [entry.snapshotId() for entry in history]
    last_index = len(ids) - 1 - ids[::-1].index(latest.snapshotId()) if latest.snapshotId() in ids else 0
    for snapshot_id in reversed(ids[:last_index]):
        previous = table.snapshot(snapshot_id)
        if previous is None or previous.sequenceNumber() <= latest.sequenceNumber():
            return False
        if progress_in(previous) is not None:
            return True
    return False
