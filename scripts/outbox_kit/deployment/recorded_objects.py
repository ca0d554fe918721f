"""Tell which objects the lock file records. Any other existing object can belong to another pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from outbox_kit.pipeline import Lock
from outbox_kit.results.changes import Change

UNRECORDED = "it exists, but the lock file does not record it: it may belong to another pipeline"


def recorded_names(lock: Lock | None) -> dict[str, set[str]]:
    """Return the names of the topics, subjects and slot in the lock file, by kind of change."""
    return {
        "topic": set(lock.topics) if lock else set(),
        "schema": {entry.subject for versions in lock.schemas.values() for entry in versions} if lock else set(),
        "slot": {lock.source.slot} if lock and lock.source else set(),
    }


def with_unrecorded_dangers(changes: Iterable[Change], lock: Lock | None) -> Iterator[Change]:
    """Add a danger to each update of a publication or a subject that the lock file does not record.

    The subject of a referenced type, which pipelines share, is recorded if the lock file has any subject. Topics with
    records of a pipeline are not changed without a lock file.
    """
    subjects = recorded_names(lock)["schema"]
    for change in changes:
        is_recorded = bool(lock and lock.source)
        if change.system == "registry":
            is_recorded = change.name in subjects or (bool(subjects) and not change.name.endswith("-value"))
        if change.kind in ("publication", "compatibility", "schema") and change.action == "update" and not is_recorded:
            danger = f"{change.danger}; {UNRECORDED}" if change.danger else UNRECORDED
            yield replace(change, danger=danger)
        else:
            yield change
