"""Which snapshot of an Iceberg table says how far it is."""

from __future__ import annotations

import json
from typing import Any

from outbox_spark.sinks.lake.table import PROGRESS_KEY


def newest_of_ours(table: Any) -> Any:  # noqa: ANN401 - of Iceberg
    """The newest snapshot that carries progress, from the current one back; None when there is none."""
    snapshot = table.currentSnapshot()
    while snapshot is not None and stored_in(snapshot) is None:
        parent = snapshot.parentId()
        snapshot = None if parent is None else table.snapshot(parent)
    return snapshot


def was_rolled_back(table: Any, found: Any) -> bool:  # noqa: ANN401 - of Iceberg
    """Whether the table has once been at a later snapshot of ours: somebody rolled it back.

    The history lists what has been current; a rollback adds the older snapshot to its end once more.
    """
    history = table.history()
    ids = [entry.snapshotId() for entry in history]
    last = len(ids) - 1 - ids[::-1].index(found.snapshotId()) if found.snapshotId() in ids else 0
    for snapshot_id in reversed(ids[:last]):
        snapshot = table.snapshot(snapshot_id)
        if snapshot is None or snapshot.sequenceNumber() <= found.sequenceNumber():
            return False
        if stored_in(snapshot) is not None:
            return True
    return False


def stored_in(snapshot: Any) -> dict[str, Any] | None:  # noqa: ANN401 - of Iceberg
    """The progress that a snapshot carries; None in snapshots of others."""
    text = snapshot.summary().get(PROGRESS_KEY)
    return None if text is None else json.loads(text)
