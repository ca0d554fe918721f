"""What `apply` would change: desired state against actual state, over all four systems."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection
from dataclasses import asdict, dataclass, field, replace

from outbox_kit.changes import Change, System
from outbox_kit.connect import lifecycle as connect_lifecycle
from outbox_kit.connect import state as connect_state
from outbox_kit.connect.config_diff import with_fingerprint
from outbox_kit.connect.conflicts import refuse_duplicates
from outbox_kit.deployment import dangers
from outbox_kit.deployment.context import Deployment
from outbox_kit.deployment.guard import refuse_other_cluster
from outbox_kit.deployment.history import highest_epoch, refuse_lost_lock
from outbox_kit.deployment.plan_model import SYSTEMS, Plan, RollOut
from outbox_kit.deployment.refusals import refuse_broken_rules
from outbox_kit.deployment.schema_rollout import roll_outs
from outbox_kit.errors import ConfigurationError
from outbox_kit.kafka import state as kafka_state
from outbox_kit.linting import lint_deployment
from outbox_kit.pipeline import Lock, LockedSchema
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres import state as postgres_state
from outbox_kit.registry import apply as registry_apply
from outbox_kit.registry import state as registry_state
from outbox_kit.rules import Check

CONNECTOR: System = "connect"
LOGIN = re.compile("//[^/@]*@")  # in an address: a plan is kept, and shown to others


def make_plan(deployment: Deployment, *, recover: bool = False, only: Collection[System] = ()) -> Plan:
    """Every pending change, in the order in which apply makes them; none when all is as the files want it.

    With `recover` the slot or the database may be another one than the lock file's. `only` leaves other systems
    alone; they are still looked at where the connector needs them. Raises RefusedError where apply would refuse
    for good, UnreachableError where a system does not answer, ConfigurationError.
    """
    if recover and only:
        raise ConfigurationError("--recover and --only exclude each other", "recovery concerns database and connector")
    lock = lock_for(deployment, recover=recover)
    refuse_broken_rules(check_rules(deployment, lock))
    asked = tuple(system for system in SYSTEMS if system in only)
    looked = SYSTEMS if CONNECTOR in asked or not asked else asked
    # First the database: most refusals come from it, and nothing else is asked after one.
    database = read_database(deployment) if {"postgres", CONNECTOR} & set(looked) else None
    changes = plan_postgres(deployment, lock, database) if database else []
    cluster = refuse_other_cluster(deployment, lock, looked)
    if CONNECTOR in looked and not recover:
        refuse_lost_lock(deployment, lock)
    changes += plan_kafka(deployment) if "kafka" in looked else []
    registry = plan_registry(deployment) if "registry" in looked else RegistryPlan()
    changes += registry.changes
    if CONNECTOR in looked and database is not None:
        if lock and not registry.changes:
            # What apply will lock is known already: so what is shown is what will be done.
            lock = lock.model_copy(update={"schemas": registry.schemas})
        changes += plan_connect(deployment, lock, changes, database, recover=recover)
    config = without_schemas(deployment, lock)
    return Plan(
        pipeline=deployment.pipeline.name,
        environment=deployment.environment.name,
        changes=tuple(change for change in changes if not asked or change.system in asked),
        rollout=registry.rollout if not asked or "registry" in asked else (),
        recover=recover,
        only=asked,
        files=files_fingerprint(deployment, config),
        waits_for=tuple(c.object for c in changes if c.system not in asked) if CONNECTOR in asked else (),
        cluster_id=cluster,
        registry=LOGIN.sub("//", deployment.registry.url) if "registry" in looked else None,
        database=f"{database.system_identifier}/{database.database}" if database else None,
        schemas=registry.schemas,
        config=config,
    )


def check_rules(deployment: Deployment, lock: Lock | None) -> list[Check]:
    """Rules that the files alone can break; what fails here stops the plan."""
    return lint_deployment(deployment.pipeline, deployment.environment, deployment.render(lock))


def without_schemas(deployment: Deployment, lock: Lock | None) -> dict[str, str]:
    """The connector's config but for what hangs on the registry: known before anything is registered."""
    return deployment.render(lock.model_copy(update={"schemas": {}}) if lock else None)


def files_fingerprint(deployment: Deployment, config: dict[str, str]) -> str:
    """SHA-256 of what the files want, whatever versions and ids the registry has."""
    wanted = {
        "config": config,
        "topics": [asdict(topic) for topic in kafka_state.desired_topics(deployment.pipeline, deployment.environment)],
        "subjects": [asdict(subject) for subject in all_subjects(deployment)],
        "source": deployment.pipeline.source.model_dump(mode="json"),
    }
    return hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()


def lock_for(deployment: Deployment, *, recover: bool) -> Lock | None:
    """The lock file; when recovering, without the source that is gone, and an epoch above all that was written."""
    lock = deployment.lock()
    if not recover:
        return lock
    lock = lock or deployment.new_lock()
    # A lock file that does not know the slot is new: what was written before, only the records tell.
    written = highest_epoch(deployment) if lock.source is None else 0
    epoch = max(lock.source_epoch, written) + 1
    update = {"source": None, "source_epoch": epoch, "unfinished": "recover"}
    return lock.model_copy(update=update)


def read_database(deployment: Deployment) -> postgres_state.ActualDatabase:
    """The source database as it is."""
    with postgres_client.connected(deployment.environment.source) as connection:
        return postgres_state.read_actual(connection, deployment.pipeline, deployment.environment)


def plan_postgres(deployment: Deployment, lock: Lock | None, database: postgres_state.ActualDatabase) -> list[Change]:
    """Pending changes of table, grants, publication and slot."""
    postgres_state.refuse_unsafe(deployment.pipeline, database, lock.source if lock else None)
    changes = postgres_state.diff(deployment.pipeline, deployment.environment, database)
    # With a source in the lock file a missing slot is refused above: so it was made before only when recovering.
    made_before = lock is not None and lock.unfinished == "recover"
    return [dangers.of_database(change) for change in changes] if made_before else changes


def plan_kafka(deployment: Deployment) -> list[Change]:
    """Pending changes of the topics."""
    topics = kafka_state.desired_topics(deployment.pipeline, deployment.environment)
    actual = deployment.kafka.describe(topic.name for topic in topics)
    kafka_state.refuse_unsafe(topics, actual)
    return kafka_state.diff(topics, actual)


@dataclass(frozen=True)
class RegistryPlan:
    """Pending changes of the subjects, what they mean for services, and the versions that are there."""

    changes: tuple[Change, ...] = ()
    rollout: tuple[RollOut, ...] = ()
    schemas: dict[str, list[LockedSchema]] = field(default_factory=dict)


def plan_registry(deployment: Deployment) -> RegistryPlan:
    """Pending changes of the subjects."""
    subjects = all_subjects(deployment)
    actual = registry_state.read_actual(deployment.registry, subjects)
    registry_state.refuse_incompatible(deployment.registry, subjects, actual)
    own = registry_state.desired_subjects(deployment.pipeline)
    there = [subject for subject in own if actual[subject.name].latest is not None]
    return RegistryPlan(
        tuple(registry_state.diff(subjects, actual)),
        roll_outs(own, actual),
        registry_apply.locked_schemas(deployment.registry, there),
    )


def all_subjects(deployment: Deployment) -> list[registry_state.Subject]:
    """Every subject of the pipeline, in the order of registering: shared types before the aggregates that use them."""
    pipeline = deployment.pipeline
    return [*registry_state.desired_references(pipeline), *registry_state.desired_subjects(pipeline)]


def connector_config(deployment: Deployment, lock: Lock | None) -> dict[str, str]:
    """The connector's config as it is written: as rendered, with the kit's own keys."""
    return with_fingerprint(deployment.pipeline.name, deployment.render(lock))


def plan_connect(
    deployment: Deployment,
    lock: Lock | None,
    before: list[Change],
    database: postgres_state.ActualDatabase,
    *,
    recover: bool = False,
) -> list[Change]:
    """Pending changes of the connector, given those that come before it."""
    name = deployment.pipeline.connector.name
    actual = connect_state.read_actual(deployment.connect, name)
    unfinished = lock.unfinished if lock else None
    # Of the look that came before the connector's: a pair that moves meanwhile is no slot that passed it.
    slot_position = connect_state.seed_offset(database.slot["confirmed_flush_lsn"])["lsn"] if database.slot else None
    connect_state.refuse_epoch(name, actual, lock, raised=recover)
    if unfinished != "recover":
        if connect_state.position(actual) > database.wal_position:
            database = read_database(deployment)  # on a busy outbox both have moved since
        connect_state.refuse_position(name, actual, lock, database.wal_position)
    config = connector_config(deployment, lock)
    refuse_duplicates(name, config, actual.others)
    state = deployment.environment.connector.state
    changes = connect_state.diff(name, config, actual, unfinished, state=state)
    new_schema = any(change.object.startswith("schema ") for change in before)
    if (changes or new_schema) and state == "running" and unfinished != "recover":
        connect_state.refuse_passed(
            name, deployment.pipeline.source.slot, connect_state.position(actual), slot_position
        )
    if changes:
        connect_lifecycle.refuse_missing_plugins(deployment.connect, config)
    changes = [dangers.of_connector(change, config, actual.config) for change in changes]
    if new_schema and not any(change.object == f"connector {name}" for change in changes):
        changes = _with_new_schemas(deployment, lock, changes)
    if recover and lock is not None:
        return [_with_epoch(change, lock.source_epoch) for change in changes]
    return changes


def _with_new_schemas(deployment: Deployment, lock: Lock | None, changes: list[Change]) -> list[Change]:
    """The update that new versions make, in its place; a template that has no schemas has none."""
    if lock is not None and deployment.render(lock) == without_schemas(deployment, lock):
        return changes
    after = "schema versions and ids (known after apply)"
    name = deployment.pipeline.connector.name
    update = Change("connect", f"connector {name}", "update", "restarts the task", "", after)
    later = [change for change in changes if change.object.startswith(("start ", "state "))]
    return [*(change for change in changes if change not in later), update, *later]


def _with_epoch(change: Change, epoch: int) -> Change:
    """Say of the connector that its epoch rises: a recovery is not only a restart."""
    if not change.object.startswith("connector "):
        return change
    why = f"{change.why}; source epoch {epoch - 1} → {epoch}: new states win over every older one"
    return replace(change, why=why)
