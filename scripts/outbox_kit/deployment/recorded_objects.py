"""Find existing objects that the lock file does not record, because they can belong to another pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from outbox_events.errors import OutboxError
from outbox_kit.connect.config_diff import PIPELINE_KEY
from outbox_kit.deployment.deployment import Deployment
from outbox_kit.deployment.plan_model import Plan
from outbox_kit.kafka import state as kafka_state
from outbox_kit.pipeline import Lock
from outbox_kit.registry import state as registry_state
from outbox_kit.results.changes import Change, System

UNRECORDED = "it exists, but the lock file does not record it: it may belong to another pipeline"


def recorded_names(lock: Lock | None) -> dict[str, set[str]]:
    """Return the names of the topics, subjects and slot in the lock file, by kind of change."""
    return {
        "topic": set(lock.topics) if lock else set(),
        "schema": {entry.subject for versions in lock.schemas.values() for entry in versions} if lock else set(),
        "slot": {lock.source.slot} if lock and lock.source else set(),
    }


def has_own_connector(deployment: Deployment) -> bool:
    """Return whether the live connector is of this pipeline and prefix, which proves the ownership of its objects."""
    pipeline = deployment.pipeline
    try:
        config = deployment.connect.config(pipeline.connector.name) or {}
    except OutboxError:  # a plan of other systems does not need Connect
        return False
    return (config.get(PIPELINE_KEY), config.get("topic.prefix")) == (pipeline.name, pipeline.prefix)


def adoptions(deployment: Deployment, lock: Lock | None, systems: Iterable[System], plan: Plan) -> Iterator[Change]:
    """Yield a dangerous change for each existing object that the lock file lacks and that the plan changes or records.

    These are publications to update, topics with records, and subjects. A subject of a recorded topic is new to the
    lock file if an apply was interrupted.
    """
    unrecorded = list(_unrecorded(deployment, lock, systems, plan))
    if unrecorded and not has_own_connector(deployment):
        yield from unrecorded


def _unrecorded(deployment: Deployment, lock: Lock | None, systems: Iterable[System], plan: Plan) -> Iterator[Change]:
    recorded = recorded_names(lock)
    for change in plan.changes if lock is None or lock.source is None else ():
        if (change.kind, change.action) == ("publication", "update"):
            yield Change("postgres", "publication", change.name, "adopt", "it exists", danger=UNRECORDED)
    if "kafka" in systems:
        desired = kafka_state.desired_topics(deployment.pipeline, deployment.environment)
        names = {topic.name for topic in desired} - recorded["topic"]
        partitions = {name: count for name, (count, _) in deployment.kafka.topics().items() if name in names}
        for name in sorted(partitions):
            if deployment.kafka.has_records(name, partitions[name]):
                yield Change("kafka", "topic", name, "adopt", "the topic has records", danger=UNRECORDED)
    if "registry" in systems:
        url = lock.registry_url if lock else None
        for subject in registry_state.desired_subjects(deployment.pipeline):
            topic = deployment.pipeline.topic_of(subject.aggregate_type)
            is_proven = subject.name in recorded["schema"] and url in (None, deployment.registry.url)
            is_proven |= topic in recorded["topic"] and url == deployment.registry.url
            if plan.schemas.get(subject.aggregate_type) and not is_proven:
                yield Change("registry", "schema", subject.name, "adopt", "the subject has versions", danger=UNRECORDED)
