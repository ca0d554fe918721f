"""Delete a pipeline in reverse order: connector, subjects, topics, slot, publication. Retain the outbox table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from outbox_events.errors import RefusedError, UnreachableError
from outbox_events.text import format_size, plural
from outbox_kit.connect import lifecycle as connect_lifecycle
from outbox_kit.connect import state as connect_state
from outbox_kit.connect.connector_config import routes
from outbox_kit.connect.offset_seeding import highest_lsn
from outbox_kit.dead_letters.topic_owner import SUFFIX
from outbox_kit.deployment.deployment import Deployment
from outbox_kit.deployment.identity import (
    READ_LIMIT_S,
    connector_differences,
    refuse_other_database,
    refuse_other_owners,
    refuse_other_prefix,
    refuse_other_registry,
    refuse_unapplied_names,
    refuse_wrong_cluster,
)
from outbox_kit.deployment.plan_model import SYSTEMS
from outbox_kit.deployment.preconditions import refuse_protected, refuse_reader_elsewhere
from outbox_kit.deployment.recorded_objects import recorded_names
from outbox_kit.kafka import apply as kafka_apply
from outbox_kit.kafka import state as kafka_state
from outbox_kit.kafka.topic_identity import is_recreated, require_backfill
from outbox_kit.pipeline import Lock, Source
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres import count_undelivered, ddl
from outbox_kit.postgres.replication_slot import read_slot, wait_inactive
from outbox_kit.postgres.state import ActualDatabase
from outbox_kit.registry import state as registry_state
from outbox_kit.results import Reporter
from outbox_kit.results.changes import Change, System

SLOT_LOSS = "rows that the connector has not delivered yet never reach Kafka"
TOPIC_LOSS = "every record of the topic is lost"
SCHEMA_LOSS = "readers that request the latest version cannot decode existing records"


@dataclass(frozen=True)
class Removal:
    """Changes that destroy makes, in order, and descriptions of the objects that it retains."""

    changes: tuple[Change, ...]
    retained: tuple[str, ...]


@dataclass(frozen=True)
class DestroyOptions:
    """Permissions to delete objects that contain data. `unused` deletes only what the pipeline file no longer uses."""

    drop_slot: bool = False
    delete_topics: bool = False
    delete_schemas: bool = False
    unused: bool = False


def plan_destroy(deployment: Deployment, options: DestroyOptions) -> Removal:
    """Return the changes that destroy would make.

    Raises RefusedError if the objects may belong to another pipeline or database.
    """
    refuse_protected(deployment)
    lock = deployment.lock()
    if options.unused and lock is None:
        message = f"lock file {deployment.lock_file} does not exist, so the topics of removed types are not known"
        raise RefusedError(message, "restore the lock file from version control")
    systems = _available_systems(deployment, lock)
    refuse_wrong_cluster(deployment, lock, systems, accepts_new=False)
    refuse_unapplied_names(deployment, lock)
    refuse_other_prefix(deployment, lock)
    refuse_other_registry(deployment, lock)
    if "connect" in systems:
        refuse_other_owners(deployment)
    database = deployment.read_database()
    database_changes = _database_changes(deployment.pipeline.source, lock, options, database)
    unused = unused_topics(deployment)
    subject_changes, retained_subjects = _subject_changes(deployment, options, unused)
    topic_changes, retained_topics = _topic_changes(deployment, options, unused)
    if options.unused:
        if "connect" in systems:
            _refuse_routed_topics(deployment, topic_changes)
        return Removal((*subject_changes, *topic_changes), (*retained_subjects, *retained_topics))
    name, reason = deployment.pipeline.connector.name, "releases the slot; the connector's offsets are also deleted"
    connector_exists = "connect" in systems and deployment.connect.config(name) is not None
    connector_changes = [Change("connect", "connector", name, "delete", reason)] if connector_exists else []
    changes = (*connector_changes, *subject_changes, *topic_changes, *database_changes)
    if changes and lock is None:
        message = f"lock file {deployment.lock_file} does not exist: {changes[0].object} may belong to another pipeline"
        raise RefusedError(message, "restore the lock file from version control")
    if lock is not None:
        _refuse_foreign_objects(deployment, lock, changes, database.publication or {})
    if "connect" in systems:
        refuse_reader_elsewhere(deployment, database.slot)
    source, materializations = deployment.pipeline.source, deployment.pipeline.materializations
    retained_tables = [f"table {source.table} and its rows, which belong to the service"] if source.uses_table else []
    if materializations:
        tables = plural(len(materializations), "table")
        retained_tables.append(
            f"{tables} of the Spark jobs (run `outbox-rebuild --new-topic` after the topics are created again)"
        )
    return Removal(changes, (*retained_subjects, *retained_topics, *retained_tables))


def _available_systems(deployment: Deployment, lock: Lock | None) -> Sequence[System]:
    """Return the systems of the pipeline. One that has only a relay may have no Kafka Connect."""
    if lock is None or lock.names or lock.unfinished:
        return SYSTEMS
    with suppress(UnreachableError), deployment.bounded(READ_LIMIT_S) as bounded_deployment:
        bounded_deployment.connect.worker_info()
        return SYSTEMS
    return [system for system in SYSTEMS if system != "connect"]


def _refuse_routed_topics(deployment: Deployment, changes: Sequence[Change]) -> None:
    """Raise RefusedError if a connector still writes to one of the topics.

    The file was not applied yet, or another pipeline's topics are in the lock file.
    """
    own_name, aggregates = deployment.pipeline.connector.name, deployment.pipeline.aggregates
    for name, connector in deployment.connect.listed_connectors().items():
        written = {route.topic for route in routes(connector.config, aggregates)}
        prefix = "" if name == own_name else connector.config.get("topic.prefix", "")
        topics = [change.name for change in changes if change.name in written or _has_prefix(change.name, prefix)]
        if topics:
            message = f"connector {name!r} still writes to {', '.join(topics)}; nothing was deleted"
            raise RefusedError(message, "run `outbox apply`, then run this command again")


def _has_prefix(topic: str, prefix: str) -> bool:
    """Return whether the topic is a topic of this prefix, or its heartbeat topic. No topic has an empty prefix."""
    return bool(prefix) and (topic.startswith(f"{prefix}.") or topic.endswith(f".{prefix}"))


def _refuse_foreign_objects(
    deployment: Deployment, lock: Lock, changes: Sequence[Change], publication: Mapping[str, Any]
) -> None:
    """Raise RefusedError if one of the objects to delete was not recorded by the last apply.

    The name of the object can come from a variable such as OUTBOX__PREFIX that was set for another pipeline.
    """
    source, recorded = lock.source, recorded_names(lock)
    if lock.registry_url is not None:  # the subjects of removed aggregate types are only in earlier lock files
        recorded["schema"] |= {f"{name}-value" for name, entry in lock.topics.items() if entry.aggregate_type is None}
    names = deployment.pipeline, deployment.environment, lock.cluster_id
    topics = deployment.kafka.describe(change.name for change in changes if change.kind == "topic")
    for change in changes:
        is_foreign = change.name not in recorded.get(change.kind, {change.name})
        if change.kind == "connector":
            is_foreign = not (lock.names or lock.unfinished) or any(connector_differences(deployment, lock))
        elif change.kind == "publication":
            is_marked = publication.get("comment") in ddl.own_marks(*names)  # also if it was created again
            is_recorded = source is not None and publication.get("oid") == source.publication_oid
            is_foreign = ddl.is_foreign_mark(publication.get("comment"), *names) or not (is_marked or is_recorded)
        elif change.kind == "topic" and not is_foreign:
            is_foreign = is_recreated(topics[change.name], lock.topics[change.name])
        if is_foreign:
            pipeline = f"the pipeline of lock file {deployment.lock_file}"
            message = f"{change.object} does not belong to {pipeline}; nothing was deleted"
            raise RefusedError(message, "check the files, --set and the variables OUTBOX__..., or run `outbox apply`")


def unused_topics(deployment: Deployment) -> list[str]:
    """Return the pipeline's existing topics that its file no longer declares. Raises UnreachableError."""
    lock, desired = deployment.lock(), kafka_state.desired_topics(deployment.pipeline, deployment.environment)
    return kafka_apply.unused_topics(deployment.kafka, desired, lock.topics) if lock else []


def _subject_changes(
    deployment: Deployment, options: DestroyOptions, unused: list[str]
) -> tuple[list[Change], list[str]]:
    subjects = [f"{topic}-value" for topic in unused]
    if not options.unused:
        subjects += [subject.name for subject in registry_state.desired_subjects(deployment.pipeline)]
    names = [name for name in subjects if deployment.registry.latest(name) is not None]
    if not options.delete_schemas:
        return [], [f"schema {name}, because records contain its ids (--delete-schemas deletes it)" for name in names]
    reason = "soft deletion: clients can still read the schemas of existing records by id"
    return [Change("registry", "schema", name, "delete", reason, danger=SCHEMA_LOSS) for name in names], []


def _topic_changes(
    deployment: Deployment, options: DestroyOptions, unused: list[str]
) -> tuple[list[Change], list[str]]:
    partitions = {name: count for name, (count, _) in deployment.kafka.topics().items()}
    reasons = dict.fromkeys(unused, "the pipeline file no longer uses the topic")
    if not options.unused:
        desired = kafka_state.desired_topics(deployment.pipeline, deployment.environment)
        reasons |= {topic.name: topic.reason for topic in desired}
    changes, retained = [], []
    for name, reason in reasons.items():
        if name not in partitions:
            continue
        has_records = deployment.kafka.has_records(name, partitions[name])
        # Heartbeat records do not contain data.
        has_data = has_records and name != deployment.pipeline.heartbeat_topic
        if has_data and not options.delete_topics:
            retained.append(name)
            continue
        content = "with records" if has_records else "empty"
        danger = TOPIC_LOSS if has_data else ""
        changes.append(Change("kafka", "topic", name, "delete", reason, content, danger=danger))
    marks = {
        change.name
        for change in changes
        if change.name.endswith(SUFFIX) and any(name.startswith(change.name.removesuffix(SUFFIX)) for name in retained)
    }
    reasons = dict.fromkeys(retained, "it has records (--delete-topics deletes it)")
    reasons |= dict.fromkeys(sorted(marks), "it shows that retained topics belong to a pipeline")
    texts = [f"topic {name}, because {reason}" for name, reason in reasons.items()]
    return [change for change in changes if change.name not in marks], texts


def _database_changes(
    source: Source, lock: Lock | None, options: DestroyOptions, database: ActualDatabase
) -> list[Change]:
    refuse_other_database(lock, database)
    changes = []
    if database.slot is not None:
        condition = "" if options.drop_slot else "dropped only after the connector has delivered every row; "
        reason = f"{condition}an unused slot retains WAL without limit"
        danger = SLOT_LOSS if options.drop_slot else ""
        changes.append(Change("postgres", "slot", source.slot, "delete", reason, danger=danger))
    if database.publication is not None:
        changes.append(
            Change("postgres", "publication", source.publication, "delete", "only readers of the slot need it")
        )
    return changes


def destroy(
    deployment: Deployment,
    progress: Reporter,
    options: DestroyOptions,
    *,
    shown_removal: Removal | None = None,
    wait_seconds: float = 0,
) -> Removal:
    """Make the changes that plan_destroy() returns, and return its result. After an interruption, repeat the command.

    If undelivered rows would be lost without permission, resume the connector and raise RefusedError before any
    deletion. Raises RefusedError, RejectedError, UnreachableError, WaitTimeoutError.
    """
    with deployment.exclusive("destroy", progress, seconds=wait_seconds):
        removal = plan_destroy(deployment, options)
        if shown_removal is not None and shown_removal.changes != removal.changes:
            raise RefusedError(
                "the objects to delete differ from the list that was shown",
                "run `outbox destroy` again; this run deleted nothing",
            )
        kinds = {change.kind for change in removal.changes}
        if kinds & {"connector", "slot"}:
            _stop_connector(deployment, progress, options, exists="connector" in kinds)
        for change in removal.changes:
            progress(change.title)
            _delete(deployment, change)
        deleted_topics = {change.name for change in removal.changes if change.kind == "topic"}
        _update_lock(deployment, deleted_topics, options)
    return removal


def _stop_connector(deployment: Deployment, progress: Reporter, options: DestroyOptions, *, exists: bool) -> None:
    """Stop the connector if it `exists`. If undelivered rows would be lost, resume it and raise RefusedError."""
    name, source = deployment.pipeline.connector.name, deployment.pipeline.source
    actual = connect_state.ActualConnector(None, None, [])
    if exists:
        actual = connect_state.read_actual(deployment.connect, name)
    was_running = actual.config is not None and not connect_lifecycle.is_paused_or_stopped(actual.status)
    with connect_lifecycle.resume_on_error(deployment.connect, name, progress, was_running=was_running):
        if actual.config is not None:
            progress(f"stop connector {name}")
            connect_lifecycle.stop(deployment.connect, name)
            actual = connect_state.read_actual(deployment.connect, name)
        undelivered_count = 0 if options.drop_slot else _count_undelivered(deployment, progress, actual)
        if undelivered_count:
            raise RefusedError(
                f"slot {source.slot!r} has {plural(undelivered_count, 'undelivered event')}; nothing was deleted",
                "stop the services and wait until all events are delivered, or accept the loss with --drop-slot",
            )


def _count_undelivered(deployment: Deployment, progress: Reporter, actual: connect_state.ActualConnector) -> int:
    """Return the number of undelivered events; 0 if the slot is unreadable. Raises RejectedError, WaitTimeoutError."""
    source = deployment.pipeline.source
    with postgres_client.connected(deployment.environment.source) as connection:
        slot = read_slot(connection, source.slot)
        if slot is None:
            return 0
        wait_inactive(connection, source.slot)
        if slot.wal_status == "lost" or postgres_client.read_publication(connection, source.publication) is None:
            return 0
        minutes = count_undelivered.PEEK_TIMEOUT_MS // 60_000
        size = format_size(postgres_client.read_server(connection)["wal_position"] - (slot.restart_lsn or 0))
        progress(f"read {size} of WAL from slot {source.slot}, for at most {minutes} minutes")
        return count_undelivered.count_undelivered(connection, source, delivered_position(actual))


def delivered_position(actual: connect_state.ActualConnector) -> count_undelivered.DeliveredPosition:
    """Return the position up to which the connector has delivered all events (the offset with the highest LSN)."""
    offsets = [entry["offset"] for entry in actual.offsets if entry["offset"]]
    if not offsets:
        return count_undelivered.DeliveredPosition()
    offset = max(offsets, key=highest_lsn)
    xid = str(offset.get("txId") or "")
    return count_undelivered.DeliveredPosition(offset.get("lsn_commit") or 0, offset.get("lsn") or 0, xid)


def _delete(deployment: Deployment, change: Change) -> None:
    if change.kind == "connector":
        connect_lifecycle.remove(deployment.connect, change.name, with_offsets=True)
    elif change.kind == "schema":
        deployment.registry.delete(change.name)
    elif change.kind == "topic":
        deployment.kafka.delete(change.name)
    else:
        with postgres_client.connected(deployment.environment.source) as connection:
            if change.kind == "slot":
                wait_inactive(connection, change.name)
                postgres_client.drop_slot(connection, change.name)
            else:
                postgres_client.drop_publication(connection, change.name)


def _update_lock(deployment: Deployment, deleted_topics: set[str], options: DestroyOptions) -> None:
    """Remove the topics from the lock file. Delete it if nothing remains of the pipeline, else increase its epoch.

    With the higher epoch, the records of a later deployment replace the states that remain on topics and in tables.
    """
    lock = deployment.lock()
    if lock is None:
        return
    if options.unused:
        topics_left = {name: entry for name, entry in lock.topics.items() if name not in deleted_topics}
        deployment.write_lock(lock.model_copy(update={"topics": topics_left}))
        return
    desired = kafka_state.desired_topics(deployment.pipeline, deployment.environment)
    topics = [topic for topic in desired if topic.name in lock.topics.keys() - deleted_topics]
    remaining = kafka_apply.existing_topics(deployment.kafka, topics, lock.topics)
    unused = set(unused_topics(deployment)) - deleted_topics
    remaining |= {name: lock.topics[name] for name in unused}
    if not remaining and (options.delete_schemas or not lock.schemas):
        deployment.lock_file.unlink()
        return
    # Rows that are committed from now on do not reach these topics, unless a relay has replaced the connector.
    is_relayed = deployment.read_database().relay.source_epoch > lock.source_epoch
    topics_left = remaining if is_relayed else require_backfill(remaining)
    schemas_left = {} if options.delete_schemas else lock.schemas
    lock = lock.model_copy(update={"topics": topics_left, "schemas": schemas_left})
    if lock.has_connector or lock.unfinished:
        epoch = lock.source_epoch if is_relayed else lock.source_epoch + 1
        unset: dict[str, Any] = {"source": None, "unfinished": None, "config": None, "names": {}}
        lock = lock.model_copy(update={**unset, "source_epoch": epoch})
    deployment.write_lock(lock)
