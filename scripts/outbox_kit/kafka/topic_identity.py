"""Compare the actual topics with the topics that the last `outbox apply` recorded."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from outbox_kit.kafka.client import ActualTopic
from outbox_kit.pipeline import LockedTopic

RecordedTopics = Mapping[str, LockedTopic]
"""Topics in the lock file, by name."""


def is_recreated(actual: ActualTopic, recorded: LockedTopic | None) -> bool:
    """Return whether the topic was deleted and created again since `recorded` was written."""
    return recorded is not None and "" not in (actual.id, recorded.id) and actual.id != recorded.id


def has_added_partitions(actual: ActualTopic, recorded: LockedTopic | None) -> bool:
    """Return whether partitions were added to the topic since `recorded` was written."""
    return recorded is not None and actual.partitions != recorded.partitions and not is_recreated(actual, recorded)


def locked_topic(
    name: str, actual: ActualTopic, aggregate_type: str | None, recorded: RecordedTopics, *, created: bool = False
) -> LockedTopic:
    """Return the lock file's entry for a topic. `created` means that `apply` has just created the topic.

    A state topic requires a backfill if the states of its aggregate type were written to an earlier topic, whose name
    can be the same.
    """
    previous = recorded.get(name)
    pending = previous.pending_backfill if previous else None
    if aggregate_type is not None:
        types = {entry.aggregate_type for entry in recorded.values()}
        # The events of a type that was removed from the pipeline file in the meantime did not reach the topic.
        was_unused = previous is not None and previous.aggregate_type is None
        lacks_states = created or was_unused or is_recreated(actual, previous) if previous else aggregate_type in types
        pending = "required" if lacks_states else pending
    return LockedTopic(
        id=actual.id, partitions=actual.partitions, aggregate_type=aggregate_type, pending_backfill=pending
    )


def require_backfill(recorded: RecordedTopics, names: Collection[str] | None = None) -> dict[str, LockedTopic]:
    """Return the entries, with a backfill marked as required for each state topic, or for those in `names`."""
    return {
        name: entry.model_copy(update={"pending_backfill": "required"})
        if entry.aggregate_type and (names is None or name in names)
        else entry
        for name, entry in recorded.items()
    }


def types_with_pending_backfill(recorded: RecordedTopics) -> list[str]:
    """Return the sorted aggregate types whose topics need a backfill."""
    pending_types = (entry.aggregate_type for entry in recorded.values() if entry.pending_backfill)
    return sorted(name for name in pending_types if name is not None)
