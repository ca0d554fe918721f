"""What topics hold of an earlier life of the pipeline, of which the lock file knows nothing."""

from __future__ import annotations

from outbox_kit.deployment.context import Deployment
from outbox_kit.errors import RECOVER, RefusedError
from outbox_kit.kafka import source_epoch
from outbox_kit.pipeline import Lock


def highest_epoch(deployment: Deployment) -> int:
    """The highest source epoch that the newest records of the state topics carry; 0 where there are none.

    Raises UnreachableError, WaitTimeoutError.
    """
    pipeline, kafka = deployment.pipeline, deployment.environment.kafka
    live = deployment.kafka.topics()
    topics = [topic for topic in map(pipeline.topic_of, pipeline.routed) if topic in live]
    bounds = {topic: deployment.kafka.bounds(topic, live[topic][0]) for topic in topics}
    return max((source_epoch.highest_epoch(kafka, topic, bounds[topic]) for topic in topics), default=0)


def refuse_lost_lock(deployment: Deployment, lock: Lock | None) -> None:
    """Without the source in a lock file, no record may carry the epoch that would be written, or a later one.

    Raises RefusedError.
    """
    if lock is not None and lock.source is not None:
        return
    locked = lock.source_epoch if lock else 1
    found = highest_epoch(deployment)
    if found >= locked:
        raise RefusedError(
            f"topics hold records of source epoch {found}, but the lock file {deployment.lock_file} "
            f"{'does not know the slot' if lock else 'is not there'}: under epoch {locked} every sink would ignore new "
            "states as older",
            f"restore the lock file from version control; if it is lost: {RECOVER}",
        )
