"""Find existing objects that the lock file does not record, because they can belong to another pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from outbox_events.errors import OutboxError
from outbox_kit.connect.config_diff import PIPELINE_KEY
from outbox_kit.dead_letters.topic_owner import owner_of
from outbox_kit.deployment.deployment import Deployment
from outbox_kit.deployment.identity import IDENTITY_KEYS
from outbox_kit.kafka import state as kafka_state
from outbox_kit.pipeline import Lock, LockedSchema
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres import ddl
from outbox_kit.postgres.client import Row
from outbox_kit.postgres.replication_slot import read_slot
from outbox_kit.postgres.state import ActualDatabase
from outbox_kit.registry import state as registry_state
from outbox_kit.results.changes import Change, System

PROVING_KEYS = (*IDENTITY_KEYS, PIPELINE_KEY)
OTHER_OWNER = "it may belong to another pipeline"
UNRECORDED = f"it exists, but the lock file does not record it: {OTHER_OWNER}"


def recorded_names(lock: Lock) -> dict[str, set[str]]:
    """Return the names of the topics, subjects and slot in the lock file, by kind of change."""
    return {
        "topic": set(lock.topics),
        "schema": {entry.subject for versions in lock.schemas.values() for entry in versions},
        # After a recovery has begun, only `names` contains the slot.
        "slot": {lock.source.slot if lock.source else "", lock.names.get("slot.name", "")},
    }


def is_recorded_slot(lock: Lock | None, name: str) -> bool:
    """Return whether the last apply recorded the slot."""
    return lock is not None and name in recorded_names(lock)["slot"]


def is_recorded_publication(lock: Lock | None, publication: Row) -> bool:
    """Return whether the last apply recorded the publication. After a recovery has begun, only `names` contains it."""
    if lock is None:
        return False
    is_same = lock.source is not None and publication["oid"] == lock.source.publication_oid
    return bool(is_same or publication["name"] == lock.names.get("publication.name"))


def has_own_connector(deployment: Deployment) -> bool:
    """Return whether the live connector proves the ownership of its objects.

    It has the pipeline, database, table, slot, publication, prefix and registry of the files, and its worker writes to
    the Kafka cluster to which the files refer. An address can be that of a forwarded port, and the environment file can
    be a copy: the database must have the slot, and the publication the mark of this deployment.
    """
    try:
        actual = deployment.connect.config(deployment.pipeline.connector.name) or {}
        cluster_id = deployment.connect.worker_info()["kafka_cluster_id"]
        is_same_cluster = bool(actual) and cluster_id == deployment.kafka.cluster_id()
        is_own_database = _is_own_database(deployment, cluster_id)
    except OutboxError:  # a plan of other systems does not need Connect
        return False
    desired = deployment.render_without_schemas(deployment.lock()) | {PIPELINE_KEY: deployment.pipeline.name}
    keys = [key for key in desired if key in PROVING_KEYS or key.endswith("registry.url")]
    return is_same_cluster and is_own_database and all(actual.get(key) == desired[key] for key in keys)


def _is_own_database(deployment: Deployment, cluster_id: str) -> bool:
    source = deployment.pipeline.source
    with postgres_client.connected(deployment.environment.source) as connection:
        publication = postgres_client.read_publication(connection, source.publication) or {}
        has_slot = read_slot(connection, source.slot) is not None
    marks = ddl.own_marks(deployment.pipeline, deployment.environment, cluster_id)
    return has_slot and publication.get("comment") in marks


def adoptions(
    deployment: Deployment,
    lock: Lock | None,
    systems: Iterable[System],
    database: ActualDatabase | None,
    schemas: Mapping[str, list[LockedSchema]],
    *,
    cluster_id: str | None = None,
    takes_over: bool = False,
) -> Iterator[Change]:
    """Yield a dangerous change for each existing object that an apply would use and that the lock file lacks.

    `schemas` contains the registered versions. If the pipeline `takes_over` the objects of another connector, only
    subjects, and topics and the publication of other pipelines, need consent.
    """
    if "registry" in systems:
        yield from _other_registry(deployment, lock)
    if lock is not None and None not in (lock.cluster_id, cluster_id) and lock.cluster_id != cluster_id:
        reason, danger = "the lock file has another Kafka cluster", "its topics may belong to another environment"
        yield Change("kafka", "cluster", str(cluster_id), "adopt", reason, str(lock.cluster_id), danger=danger)
    existing_topics = deployment.kafka.topics() if "kafka" in systems else {}
    topics = list(_unrecorded_topics(deployment, lock, existing_topics))
    subjects = list(_unrecorded_subjects(deployment, lock, schemas)) if "registry" in systems else []
    known_cluster = (lock.cluster_id if lock else None) or cluster_id
    in_postgres = list(_unrecorded_in_postgres(deployment, database, known_cluster)) if database else []
    if takes_over:
        comment = ((database and database.publication) or {}).get("comment") or ""
        is_marked = comment.startswith(ddl.MARK_PREFIX)
        yield from (change for change in in_postgres if change.kind == "publication" and is_marked)
        yield from (change for change in topics if owner_of(change.name, existing_topics) is not None)
        yield from subjects
        return
    unrecorded = [*in_postgres, *topics, *subjects]
    is_proven = bool(unrecorded) and has_own_connector(deployment)
    proves_registry = is_proven and any(key.endswith("registry.url") for key in deployment.render_without_schemas(lock))
    for change in unrecorded:
        owner = owner_of(change.name, existing_topics) if change.kind in ("topic", "schema") else None
        is_of_other = owner not in (None, deployment.pipeline.prefix)
        if not is_proven or is_of_other or (change.kind == "schema" and not proves_registry):
            yield change


def _other_registry(deployment: Deployment, lock: Lock | None) -> Iterator[Change]:
    """Yield a change if the last apply used another registry, which may have subjects of other pipelines."""
    url, recorded = deployment.registry.url, lock.registry_url if lock else None
    if recorded not in (None, url):
        reason = "the lock file has another registry"
        danger = f"{recorded} → {url}: its subjects and shared types may belong to other pipelines"
        yield Change("registry", "registry", url, "adopt", reason, str(recorded), url, danger=danger)


def _unrecorded_topics(
    deployment: Deployment, lock: Lock | None, existing_topics: Mapping[str, tuple[int, int]]
) -> Iterator[Change]:
    """Yield a change for each topic, except for those that an interrupted apply may have created, while empty."""
    desired = kafka_state.desired_topics(deployment.pipeline, deployment.environment)
    lock = lock or deployment.new_lock()
    for name in sorted({topic.name for topic in desired} & existing_topics.keys() - lock.topics.keys()):
        if name not in lock.created_topics or deployment.kafka.has_records(name, existing_topics[name][0]):
            yield Change("kafka", "topic", name, "adopt", "the topic exists", danger=UNRECORDED)


def _unrecorded_subjects(
    deployment: Deployment, lock: Lock | None, schemas: Mapping[str, list[LockedSchema]]
) -> Iterator[Change]:
    """Yield a change for each subject, except for those that an interrupted apply may have created."""
    lock = lock or deployment.new_lock()
    recorded = recorded_names(lock)["schema"].union(lock.created_subjects)
    for subject in registry_state.desired_subjects(deployment.pipeline):
        if schemas.get(subject.aggregate_type) and subject.name not in recorded:
            yield Change("registry", "schema", subject.name, "adopt", "the subject has versions", danger=UNRECORDED)


def _unrecorded_in_postgres(
    deployment: Deployment, database: ActualDatabase, cluster_id: str | None
) -> Iterator[Change]:
    """Yield changes for publication and slot, unless the lock file records them, or the publication has the mark.

    A publication with the mark of another deployment is yielded even if its oid is recorded: a copy of a server's files
    has the same oids.
    """
    lock, publication, slot = deployment.lock(), database.publication, database.slot
    names = deployment.pipeline, deployment.environment, cluster_id
    comment = publication["comment"] if publication else None
    if comment in ddl.own_marks(*names):
        return
    is_recorded = publication is not None and is_recorded_publication(lock, publication)
    is_foreign = ddl.is_foreign_mark(comment, *names)
    if publication is not None and (is_foreign or not is_recorded):
        reason = f"it has the comment {comment!r}" if comment else "it exists"
        danger = f"{reason}, not {ddl.publication_mark(*names)!r}: {OTHER_OWNER}" if is_foreign else UNRECORDED
        yield Change("postgres", "publication", publication["name"], "adopt", reason, danger=danger)
    if slot is not None and not is_recorded_slot(lock, slot.name):
        yield Change("postgres", "slot", slot.name, "adopt", "it exists", danger=UNRECORDED)
