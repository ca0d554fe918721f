"""A world in which all is well, without any network."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.unit.postgres.samples import DEPLOYED, DETAILS

from outbox_kit import __version__
from outbox_kit.connect.checks import Look as ConnectLook
from outbox_kit.connect.client import ConnectorStatus, Validation
from outbox_kit.connect.state import CLASS_KEYS, ActualConnector
from outbox_kit.connect.verify_queries import Observed, Worker
from outbox_kit.deployment import Deployment
from outbox_kit.kafka.checks import Look as KafkaLook
from outbox_kit.kafka.client import TopicState
from outbox_kit.kafka.state import desired_topics
from outbox_kit.kafka.verify_queries import Cluster, PartitionState
from outbox_kit.pipeline import Lock
from outbox_kit.postgres.checks import Look as PostgresLook
from outbox_kit.registry.checks import Look as RegistryLook
from outbox_kit.registry.client import SchemaVersion
from outbox_kit.registry.state import ActualSubject, desired_subjects
from outbox_kit.verification.snapshot import Answer, Later, World

RUNNING = ConnectorStatus("RUNNING", ("RUNNING",), ())
REACHED = 0x16B374D848
OFFSETS = [{"partition": {"server": "library"}, "offset": {"lsn": REACHED, "messageType": "INSERT"}}]


def world(deployment: Deployment, lock: Lock) -> World:
    """Everything as apply leaves it."""
    pipeline, environment = deployment.pipeline, deployment.environment
    topics = desired_topics(pipeline, environment)
    actual = {topic.name: TopicState(topic.partitions, 3, dict(topic.config)) for topic in topics}
    cluster = Cluster("k1", {topic.name: [PartitionState(3, 3, True)] * topic.partitions for topic in topics})
    locked = {(entry.subject, entry.version): entry for entries in lock.schemas.values() for entry in entries}
    registered = {key: SchemaVersion(entry.version, entry.id, entry.text) for key, entry in locked.items()}
    subjects = desired_subjects(pipeline)
    live = {
        each.name: ActualSubject(registered[each.name, lock.schemas[each.aggregate_type][0].version], "BACKWARD")
        for each in subjects
    }
    return World(
        deployment,
        lock,
        Answer(PostgresLook(pipeline, environment, lock.source, DEPLOYED, DETAILS)),
        Answer(KafkaLook(environment.kafka, "k1", topics, actual, cluster, {0: 0})),
        Answer(RegistryLook(subjects, live, lock)),
        Answer(connect(deployment, lock)),
        Later(DEPLOYED.wal_position, dict(registered)),
        5,
    )


def connect(deployment: Deployment, lock: Lock) -> ConnectLook:
    """The connector as rendered, RUNNING."""
    config = deployment.render(lock)
    versions = {value: __version__ for key, value in config.items() if CLASS_KEYS.fullmatch(key)}
    observed = Observed(
        ActualConnector(config, RUNNING, OFFSETS),
        "k1",
        versions,
        [Worker("http://a", versions)],
        [],
        Validation({}, []),
    )
    return ConnectLook(deployment.pipeline.connector.name, config, observed, "running", "required", "k1")


def with_live(found: World, changes: dict[str, str | None]) -> World:
    """The world with other keys in the live connector config; None takes a key away."""
    look = found.connect.look
    assert look is not None
    config = {**(look.observed.actual.config or {}), **changes}
    kept: Any = {key: value for key, value in config.items() if value is not None}
    observed = replace(look.observed, actual=replace(look.observed.actual, config=kept))
    return replace(found, connect=Answer(replace(look, observed=observed)))
