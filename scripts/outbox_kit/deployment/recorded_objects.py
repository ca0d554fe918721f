"""Find existing objects that the lock file does not record, because they can belong to another pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from outbox_events.errors import OutboxError
from outbox_kit.connect.config_diff import PIPELINE_KEY
from outbox_kit.deployment.deployment import Deployment
from outbox_kit.kafka import state as kafka_state
from outbox_kit.pipeline import Lock, LockedSchema
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


def adoptions(
    deployment: Deployment, lock: Lock | None, systems: Iterable[System], schemas: dict[str, list[LockedSchema]]
) -> Iterator[Change]:
    """Yield a dangerous change for each existing topic with records, and each subject, that the lock file lacks.

    A subject of a recorded topic is new to the lock file if an apply was interrupted. `schemas` contains the registered
    versions.
    """
    unrecorded = list(_unrecorded(deployment, lock, systems, schemas))
    if unrecorded and not has_own_connector(deployment):
        yield from unrecorded


def _unrecorded(
    deployment: Deployment, lock: Lock | None, systems: Iterable[System], schemas: dict[str, list[LockedSchema]]
) -> Iterator[Change]:
    recorded = recorded_names(lock)
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
            if schemas.get(subject.aggregate_type) and not is_proven:
                yield Change("registry", "schema", subject.name, "adopt", "the subject has versions", danger=UNRECORDED)


def with_unrecorded_dangers(changes: Iterable[Change], lock: Lock | None) -> Iterator[Change]:
    """Add a danger to each update of a publication that the lock file does not record."""
    for change in changes:
        is_unrecorded = lock is None or lock.source is None
        if (change.kind, change.action) == ("publication", "update") and is_unrecorded:
            yield replace(change, danger=change.danger or UNRECORDED)
        else:
            yield change
