"""Find the state topics that need a first backfill, and return the commands of pending backfills."""

from __future__ import annotations

from collections.abc import Iterable

from outbox_kit.deployment.deployment import Deployment
from outbox_kit.kafka.topic_identity import types_with_pending_backfill
from outbox_kit.pipeline import Lock
from outbox_kit.postgres import client as postgres_client
from outbox_kit.results.changes import Change
from outbox_kit.results.repair_commands import resend_steps


def topics_without_states(deployment: Deployment, lock: Lock | None, changes: Iterable[Change]) -> dict[str, str]:
    """Return a mapping from each topic that needs its first backfill to its aggregate type, if this has a `backfill`.

    Such a topic is created by `changes`, or empty in a pipeline whose connector has never run; and the business table
    of its aggregate type has rows. Raises UnreachableError, RejectedError.
    """
    created = {change.name for change in changes if change.action == "create"}
    pipeline, never_ran = deployment.pipeline, lock is None or lock.config is None
    tables = {
        pipeline.topic_of(name): (name, aggregate.backfill.table)
        for name, aggregate in pipeline.aggregates.items()
        if aggregate.backfill and (never_ran or pipeline.topic_of(name) in created)
    }
    if not pipeline.source.uses_table or not tables:
        return {}
    with postgres_client.connected(deployment.environment.source) as connection:
        types = {topic: name for topic, (name, table) in tables.items() if postgres_client.has_rows(connection, table)}
    bounds = {topic: deployment.kafka.bounds(topic).values() for topic in types.keys() - created}
    filled = {topic for topic, partitions in bounds.items() if any(entry.first < entry.end for entry in partitions)}
    return {topic: name for topic, name in types.items() if topic not in filled}


def pending_backfill_steps(deployment: Deployment) -> str:
    """Return the commands of the backfills that are pending in the lock file, or "" if there are none."""
    lock = deployment.lock()
    types = types_with_pending_backfill(lock.topics) if lock else []
    return resend_steps(deployment.pipeline, types, pending=True) if types else ""
