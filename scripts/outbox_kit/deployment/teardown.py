"""Takes a pipeline down in reverse order: connector, subjects, topics, slot, publication; never the outbox table."""

from __future__ import annotations

from dataclasses import dataclass

from outbox_kit.changes import Change
from outbox_kit.connect import lifecycle as connect_lifecycle
from outbox_kit.connect import state as connect_state
from outbox_kit.connect.offset_seeding import reached
from outbox_kit.deployment.context import Deployment
from outbox_kit.deployment.guard import refuse_other_cluster
from outbox_kit.deployment.plan import read_database
from outbox_kit.deployment.plan_model import SYSTEMS
from outbox_kit.errors import RefusedError
from outbox_kit.kafka import state as kafka_state
from outbox_kit.pipeline import Lock
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres import slot_removal
from outbox_kit.postgres.advisory_lock import exclusive
from outbox_kit.progress import Progress
from outbox_kit.registry import state as registry_state

SLOT_LOSS = "rows that the connector has not delivered yet never reach Kafka"
TOPIC_LOSS = "every state on it is lost"
SCHEMA_LOSS = "records that exist cannot be decoded by readers that ask for the newest version"


@dataclass(frozen=True)
class Removal:
    """What destroy would delete, in its order, and what it keeps, in words."""

    changes: tuple[Change, ...]
    kept: tuple[str, ...]


@dataclass(frozen=True)
class Flags:
    """What a person allowed to be lost."""

    drop_slot: bool = False
    delete_topics: bool = False
    delete_schemas: bool = False


def plan_destroy(deployment: Deployment, flags: Flags) -> Removal:
    """What destroy would do. Raises RefusedError where it would touch another pipeline's or database's objects."""
    lock = deployment.lock()
    refuse_other_cluster(deployment, lock, SYSTEMS)
    connector = _connector(deployment)
    subjects, kept_subjects = _subjects(deployment, flags)
    topics, kept_topics = _topics(deployment, flags)
    database = _database(deployment, lock, flags)
    changes = (*connector, *subjects, *topics, *database)
    if changes and lock is None:
        raise RefusedError(
            f"there is no lock file {deployment.lock_file}: {changes[0].object} may be somebody else's",
            "restore the lock file from version control",
        )
    source = deployment.pipeline.source
    kept_table = [f"table {source.table} and its rows: they are the service's"] if source.uses_table else []
    return Removal(changes, (*kept_subjects, *kept_topics, *kept_table))


def _connector(deployment: Deployment) -> list[Change]:
    name = deployment.pipeline.connector.name
    if deployment.connect.config(name) is None:
        return []
    return [Change("connect", f"connector {name}", "delete", "first, so that nobody reads the slot; its offsets too")]


def _subjects(deployment: Deployment, flags: Flags) -> tuple[list[Change], list[str]]:
    subjects = registry_state.desired_subjects(deployment.pipeline)
    found = [subject.name for subject in subjects if deployment.registry.latest(subject.name) is not None]
    if not flags.delete_schemas:
        return [], [f"schema {name}: records carry its ids (--delete-schemas)" for name in found]
    why = "a soft deletion: ids in old records can still be resolved"
    return [Change("registry", f"schema {name}", "delete", why, danger=SCHEMA_LOSS) for name in found], []


def _topics(deployment: Deployment, flags: Flags) -> tuple[list[Change], list[str]]:
    wanted = kafka_state.desired_topics(deployment.pipeline, deployment.environment)
    live = deployment.kafka.topics()
    changes, kept = [], []
    for topic in wanted:
        if topic.name not in live:
            continue
        has_records = deployment.kafka.has_records(topic.name, live[topic.name][0])
        # Heartbeats tell nothing that anybody could miss.
        if has_records and not flags.delete_topics and topic.name != deployment.pipeline.heartbeat_topic:
            kept.append(f"topic {topic.name}: it has records (--delete-topics)")
            continue
        before = "with records" if has_records else "empty"
        danger = TOPIC_LOSS if has_records and topic.name != deployment.pipeline.heartbeat_topic else ""
        changes.append(Change("kafka", f"topic {topic.name}", "delete", topic.why, before, danger=danger))
    return changes, kept


def _database(deployment: Deployment, lock: Lock | None, flags: Flags) -> list[Change]:
    database = read_database(deployment)
    source = deployment.pipeline.source
    locked = lock.source if lock else None
    if locked is not None and locked.system_identifier != database.system_identifier:
        raise RefusedError(
            f"the database is another one (system identifier {database.system_identifier}, the lock file has "
            f"{locked.system_identifier})",
            "check source.host",
        )
    changes = []
    if database.slot is not None:
        why = "" if flags.drop_slot else "only once the connector has delivered every row; "
        danger = SLOT_LOSS if flags.drop_slot else ""
        change = Change("postgres", f"slot {source.slot}", "delete", f"{why}it would hold WAL for ever", danger=danger)
        changes.append(change)
    if database.publication is not None:
        changes.append(Change("postgres", f"publication {source.publication}", "delete", "the slot needed it"))
    return changes


def destroy(
    deployment: Deployment,
    progress: Progress,
    flags: Flags,
    *,
    shown: Removal | None = None,
    wait_seconds: float = 0,
) -> Removal:
    """Delete what plan_destroy() finds; returns it. Safe to interrupt and to run again.

    A slot with rows that the connector has not delivered is refused before anything is deleted, and the connector
    runs again. Raises RefusedError, RejectedError, UnreachableError, WaitTimeoutError.
    """
    with exclusive(deployment.environment.source, deployment.pipeline.name, seconds=wait_seconds):
        removal_plan = plan_destroy(deployment, flags)
        if shown is not None and shown.changes != removal_plan.changes:
            raise RefusedError("the world moved: other objects would be deleted than shown", "look again")
        _stop(deployment, progress, flags)
        for change in removal_plan.changes:
            progress(f"{change.action} {change.object}")
            _delete(deployment, change)
        _close_lock(deployment)
    return removal_plan


def _stop(deployment: Deployment, progress: Progress, flags: Flags) -> None:
    """Stop the connector and look at what it leaves behind; start it again where that would be lost or is not known."""
    name, source = deployment.pipeline.connector.name, deployment.pipeline.source
    actual = connect_state.read_actual(deployment.connect, name)
    was_running = actual.config is not None and not connect_lifecycle.is_at_rest(actual.status)
    with connect_lifecycle.resumed_on_error(deployment.connect, name, progress, was_running=was_running):
        if actual.config is not None:
            progress(f"stop connector {name}")
            connect_lifecycle.stop(deployment.connect, name)
            actual = connect_state.read_actual(deployment.connect, name)
        rows = 0 if flags.drop_slot else _undelivered(deployment, progress, actual)
        if rows:
            raise RefusedError(
                f"slot {source.slot!r} has {rows} rows that the connector has not delivered; nothing was deleted",
                "stop the services and let the connector deliver; or lose these rows: --drop-slot",
            )


def _undelivered(deployment: Deployment, progress: Progress, actual: connect_state.ActualConnector) -> int:
    """Rows, or messages, that would go with the slot. Raises RejectedError, WaitTimeoutError."""
    source = deployment.pipeline.source
    with postgres_client.connected(deployment.environment.source) as connection:
        found = postgres_client.slot(connection, source.slot)
        if found is None:
            return 0
        slot_removal.wait_given_up(connection, source.slot)
        if found["wal_status"] == "lost" or postgres_client.publication(connection, source.publication) is None:
            return 0
        minutes = slot_removal.PEEK_TIMEOUT_MS // 60_000
        progress(f"read {found['retained_bytes']} bytes of WAL of slot {source.slot}, for at most {minutes} minutes")
        return slot_removal.undelivered_rows(connection, source, delivered(actual))


def delivered(actual: connect_state.ActualConnector) -> slot_removal.Delivered:
    """What the connector's offset says: Debezium keeps the last commit, and the event of a transaction after it."""
    offsets = [entry["offset"] for entry in actual.offsets if entry["offset"]]
    if not offsets:
        return slot_removal.Delivered()
    newest = max(offsets, key=reached)
    xid = str(newest.get("txId") or "")
    return slot_removal.Delivered(newest.get("lsn_commit") or 0, newest.get("lsn") or 0, xid)


def _delete(deployment: Deployment, change: Change) -> None:
    kind, name = change.object.split(" ", 1)
    if kind == "connector":
        # Connect keeps the offsets of a deleted connector: a new one of that name would go on from them.
        connect_lifecycle.remove(deployment.connect, name, offsets=True)
    elif kind == "schema":
        deployment.registry.delete(name)
    elif kind == "topic":
        deployment.kafka.delete(name)
    else:
        with postgres_client.connected(deployment.environment.source) as connection:
            if kind == "slot":
                slot_removal.wait_given_up(connection, name)
                slot_removal.drop_slot(connection, name)
            else:
                slot_removal.drop_publication(connection, name)


def _close_lock(deployment: Deployment) -> None:
    """The lock file goes with the last topic. Until then its epoch is needed, one higher: what a new pipeline writes
    must win over the states that are still on the topics, and in the tables made of them."""
    lock = deployment.lock()
    if lock is None:
        return
    live = deployment.kafka.topics()
    topics = kafka_state.desired_topics(deployment.pipeline, deployment.environment)
    if not any(topic.name in live for topic in topics):
        deployment.lock_file.unlink()
    elif lock.source is not None:
        update = {"source": None, "source_epoch": lock.source_epoch + 1, "unfinished": None, "config": None}
        deployment.write_lock(lock.model_copy(update=update))
