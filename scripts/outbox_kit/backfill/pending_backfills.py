"""Record in the lock file that pending backfills were started, completed or acknowledged."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Literal

from outbox_events.errors import ConfigurationError, RefusedError, UnreachableError
from outbox_kit.deployment import Deployment
from outbox_kit.kafka.topic_identity import is_recreated
from outbox_kit.postgres.advisory_lock import pipeline_lock
from outbox_kit.results import Reporter

Pending = Literal["required", "started"] | None
# Maximum wait for another command that changes the pipeline. Only one command at a time can write the lock file.
LOCK_FILE_TIMEOUT_S = 60


def topic_id(deployment: Deployment, aggregate_type: str) -> str:
    """Return the id of the type's topic in the lock file, or "" if unknown.

    Raises RefusedError if the topic was created again since the last apply, so that it lacks all earlier states.
    """
    name, lock = deployment.pipeline.topic_of(aggregate_type), deployment.lock()
    recorded = lock.topics.get(name) if lock else None
    with suppress(UnreachableError):  # rows can be written while Kafka is down
        actual = deployment.kafka.describe([name]).get(name)
        if actual is not None and is_recreated(actual, recorded):
            raise RefusedError(
                f"topic {name} has id {actual.id}, but the lock file has {recorded.id if recorded else ''}: the topic "
                "was deleted and created again",
                "run `outbox plan`, and make its changes",
            )
    return recorded.id if recorded else ""


def is_required(deployment: Deployment, aggregate_type: str) -> bool:
    """Return whether the topic needs a backfill that has not started. Any stored progress is then outdated."""
    return _pending(deployment, aggregate_type) == "required"


def is_pending(deployment: Deployment, aggregate_type: str) -> bool:
    """Return whether the topic needs a backfill, even if one has started."""
    return _pending(deployment, aggregate_type) is not None


def begin(deployment: Deployment, aggregate_type: str, *, restart: bool) -> None:
    """Record the start of a required backfill, or with `restart`, of any. The caller must delete the progress first."""
    _replace(deployment, aggregate_type, None if restart else "required", "started")


def finish(deployment: Deployment, aggregate_type: str) -> None:
    """Record the end of a backfill, unless another backfill of the topic became necessary after its start."""
    _replace(deployment, aggregate_type, "started", None)


def acknowledge(deployment: Deployment, aggregate_types: Sequence[str], progress: Reporter) -> None:
    """Record that the topics contain all latest states. Raises ConfigurationError for unknown types."""
    known_types = deployment.pipeline.aggregates.keys()
    unknown_types = sorted(set(aggregate_types) - known_types)
    if unknown_types or not aggregate_types:
        message = f"unknown aggregate type {unknown_types[0]!r}" if unknown_types else "no aggregate type is given"
        raise ConfigurationError(message, f"name one or more of the aggregate types {', '.join(known_types)}")
    for aggregate_type in aggregate_types:
        _replace(deployment, aggregate_type, _pending(deployment, aggregate_type), None)
        progress(f"{aggregate_type}: acknowledged; no backfill is pending")


def _pending(deployment: Deployment, aggregate_type: str) -> Pending:
    lock = deployment.lock()
    topic = lock.topics.get(deployment.pipeline.topic_of(aggregate_type)) if lock else None
    return topic.pending_backfill if topic else None


def _replace(deployment: Deployment, aggregate_type: str, before: Pending, after: Pending) -> None:
    """Replace the pending backfill in the lock file if its current value is `before`.

    Raises UnreachableError, and WaitTimeoutError if another command that changes the pipeline does not end.
    """
    if before == after or _pending(deployment, aggregate_type) != before:
        return
    name = deployment.pipeline.topic_of(aggregate_type)
    with pipeline_lock(
        deployment.environment.source, deployment.pipeline.name, command="backfill", seconds=LOCK_FILE_TIMEOUT_S
    ):
        lock = deployment.lock()
        if lock is not None and name in lock.topics and lock.topics[name].pending_backfill == before:
            topic = lock.topics[name].model_copy(update={"pending_backfill": after})
            deployment.write_lock(lock.model_copy(update={"topics": {**lock.topics, name: topic}}))
