"""Find existing objects that the lock file does not record, because they can belong to another pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from outbox_events.errors import OutboxError
from outbox_kit.connect.config_diff import PIPELINE_KEY
from outbox_kit.deployment.deployment import Deployment
from outbox_kit.kafka import state as kafka_state
from outbox_kit.pipeline import Lock, LockedSchema
from outbox_kit.postgres import ddl
from outbox_kit.postgres.state import ActualDatabase
from outbox_kit.registry import state as registry_state
from outbox_kit.results.changes import Change, System

PROVING_KEYS = (
    *("database.hostname", "database.port", "database.dbname"),
    *("slot.name", "publication.name", "topic.prefix", PIPELINE_KEY),
)
UNRECORDED = "it exists, but the lock file does not record it: it may belong to another pipeline"


def recorded_names(lock: Lock | None) -> dict[str, set[str]]:
    """Return the names of the topics, subjects and slot in the lock file, by kind of change."""
    return {
        "topic": {*lock.topics, *lock.created_topics} if lock else set(),
        "schema": {entry.subject for versions in lock.schemas.values() for entry in versions} if lock else set(),
        "slot": {lock.source.slot} if lock and lock.source else set(),
    }


def has_own_connector(deployment: Deployment) -> bool:
    """Return whether the live connector proves the ownership of its objects.

    It has the pipeline, database, slot, publication, prefix and registry of the files, and its worker writes to the
    Kafka cluster to which the files refer.
    """
    try:
        actual = deployment.connect.config(deployment.pipeline.connector.name) or {}
        cluster_id = deployment.connect.worker_info()["kafka_cluster_id"]
        is_same_cluster = bool(actual) and cluster_id == deployment.kafka.cluster_id()
    except OutboxError:  # a plan of other systems does not need Connect
        return False
    desired = deployment.render_without_schemas(deployment.lock()) | {PIPELINE_KEY: deployment.pipeline.name}
    keys = [key for key in desired if key in PROVING_KEYS or key.endswith("registry.url")]
    return is_same_cluster and all(actual.get(key) == desired[key] for key in keys)


def adoptions(
    deployment: Deployment,
    lock: Lock | None,
    systems: Iterable[System],
    database: ActualDatabase | None,
    schemas: Mapping[str, list[LockedSchema]],
) -> Iterator[Change]:
    """Yield a dangerous change for each existing object that an apply would use and that the lock file lacks.

    A subject of a recorded topic is new to the lock file if an apply was interrupted. `schemas` contains the registered
    versions.
    """
    unrecorded = [
        *(_unrecorded_in_postgres(deployment, database) if database is not None else ()),
        *(_unrecorded_topics(deployment, lock) if "kafka" in systems else ()),
        *(_unrecorded_subjects(deployment, lock, schemas) if "registry" in systems else ()),
    ]
    is_other_registry = lock is not None and lock.registry_url not in (None, deployment.registry.url)
    is_proven = bool(unrecorded) and has_own_connector(deployment)
    for change in unrecorded:
        if not is_proven or (change.system == "registry" and is_other_registry):
            yield change


def _unrecorded_topics(deployment: Deployment, lock: Lock | None) -> Iterator[Change]:
    desired = kafka_state.desired_topics(deployment.pipeline, deployment.environment)
    existing = {topic.name for topic in desired} & deployment.kafka.topics().keys()
    for name in sorted(existing - recorded_names(lock)["topic"]):
        yield Change("kafka", "topic", name, "adopt", "the topic exists", danger=UNRECORDED)


def _unrecorded_subjects(
    deployment: Deployment, lock: Lock | None, schemas: Mapping[str, list[LockedSchema]]
) -> Iterator[Change]:
    recorded, url = recorded_names(lock), lock.registry_url if lock else None
    for subject in registry_state.desired_subjects(deployment.pipeline):
        topic = deployment.pipeline.topic_of(subject.aggregate_type)
        is_proven = subject.name in recorded["schema"] and url in (None, deployment.registry.url)
        is_proven |= topic in recorded["topic"] and url == deployment.registry.url
        if schemas.get(subject.aggregate_type) and not is_proven:
            yield Change("registry", "schema", subject.name, "adopt", "the subject has versions", danger=UNRECORDED)


def _unrecorded_in_postgres(deployment: Deployment, database: ActualDatabase) -> Iterator[Change]:
    """Yield changes for publication and slot, unless the lock file records them, or the publication has the mark."""
    lock, publication, slot = deployment.lock(), database.publication, database.slot
    mark = ddl.publication_mark(deployment.pipeline, deployment.environment)
    is_recorded = lock is not None and (lock.source is not None or lock.unfinished == "recover")
    if is_recorded or (publication is not None and publication["comment"] == mark):
        return
    if publication is not None:
        reason = f"it has the comment {publication['comment']!r}" if publication["comment"] else "it exists"
        name = deployment.pipeline.source.publication
        yield Change("postgres", "publication", name, "adopt", reason, danger=UNRECORDED)
    if slot is not None:
        yield Change("postgres", "slot", slot.name, "adopt", "it exists", danger=UNRECORDED)
