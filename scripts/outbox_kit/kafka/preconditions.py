"""Describe the dangers of changes to topics, that is, the data that a change can lose."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

# Settings that delete records if they are decreased, each with the cleanup.policy that uses it and with the loss.
RETENTION_SETTINGS = {
    "delete.retention.ms": (
        "compact",
        "tombstones are deleted before a stopped consumer has read them: its table retains the deleted rows",
    ),
    "retention.bytes": ("delete", "the oldest records are deleted, including states and unacknowledged dead letters"),
    "retention.ms": ("delete", "older records are deleted, including states and unacknowledged dead letters"),
}
MOVE_HINT = "move the pipeline to new topics as described in docs/planned-changes.md (Adding partitions)"
NEW_PARTITIONS = (
    "keys move to other partitions, so tombstones do not reach the previous partition of their key; the states of "
    f"deleted aggregates remain there, even after a backfill; instead, {MOVE_HINT}"
)


def lost_states(aggregate_type: str, backfill_steps: str) -> str:
    """Return the danger of replacing an aggregate type's recorded topic with a new topic."""
    return f"the topic lacks the states of {aggregate_type} that were on the deleted topic; afterwards {backfill_steps}"


def setting_dangers(
    desired: Mapping[str, str], actual: Mapping[str, str], different_values: Mapping[str, tuple[str, str]]
) -> Iterator[str]:
    """Describe the data that a new cleanup policy or a shorter retention can delete."""
    old_policies, new_policies = (_policies(value) for value in different_values.get("cleanup.policy", ("", "")))
    if "compact" in new_policies - old_policies:
        yield "compaction removes all but the latest record of each key, and records without a key are rejected"
    if "delete" in new_policies:
        deleted_states = ", including the latest states of keys" if "compact" in old_policies else ""
        yield f"records older than the retention are deleted{deleted_states}"
    policies = _policies(desired.get("cleanup.policy", actual.get("cleanup.policy", "")))
    for key, (before, after) in sorted(different_values.items()):
        if key in RETENTION_SETTINGS and RETENTION_SETTINGS[key][0] in policies and _is_lower(before, after):
            yield f"{key} {before} → {after}: {RETENTION_SETTINGS[key][1]}"


def _policies(value: str) -> set[str]:
    return {policy.strip() for policy in value.split(",") if policy.strip()}


def _is_lower(before: str, after: str) -> bool:
    """Return whether `after` is lower than `before`. Negative limits are infinite. Return False for other texts."""
    try:
        old_limit, new_limit = (math.inf if int(value) < 0 else int(value) for value in (before, after))
    except ValueError:
        return False
    return new_limit < old_limit
