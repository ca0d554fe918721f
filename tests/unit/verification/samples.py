"""A LiveState in which every check passes, without network access."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.unit.kafka_samples import actual_topics
from tests.unit.postgres.samples import DEPLOYED, DETAILS

from outbox_events.errors import UnreachableError
from outbox_kit import __version__
from outbox_kit.connect.checks import ConnectState
from outbox_kit.connect.client import ConnectorStatus, Validation
from outbox_kit.connect.state import CLASS_KEYS, ActualConnector
from outbox_kit.connect.verify_queries import Endpoint, ObservedConnect, Worker
from outbox_kit.deployment import Deployment
from outbox_kit.kafka.checks import KafkaState
from outbox_kit.kafka.client import ActualTopic
from outbox_kit.kafka.state import desired_topics
from outbox_kit.kafka.verify_queries import DEFAULT_NAMES, Cluster, InternalTopic, PartitionState
from outbox_kit.pipeline import Lock
from outbox_kit.postgres.checks import DatabaseState
from outbox_kit.registry.checks import RegistryState
from outbox_kit.registry.client import SchemaVersion
from outbox_kit.registry.state import ActualSubject, desired_subjects
from outbox_kit.verification.live_state import LiveState, ReadResult

RUNNING = ConnectorStatus("RUNNING", ("RUNNING",), ())
INTERNAL_TOPICS = [
    InternalTopic(key, name, False, ActualTopic(1, 3, {"cleanup.policy": "compact"}))
    for key, name in DEFAULT_NAMES.items()
]
REACHED = 0x16B374D848
OFFSETS = [{"partition": {"server": "library"}, "offset": {"lsn": REACHED, "messageType": "INSERT"}}]


def live_state(deployment: Deployment, lock: Lock) -> LiveState:
    """Return the state after apply."""
    pipeline, environment = deployment.pipeline, deployment.environment
    topics = desired_topics(pipeline, environment)
    actual = actual_topics(topics)
    cluster = Cluster("k1", {topic.name: [PartitionState(3, 3, True)] * topic.partitions for topic in topics})
    locked = {(entry.subject, entry.version): entry for entries in lock.schemas.values() for entry in entries}
    registered = {key: SchemaVersion(entry.version, entry.id, entry.text) for key, entry in locked.items()}
    subjects = desired_subjects(pipeline)
    subjects_in_registry = {
        item.name: ActualSubject(registered[item.name, lock.schemas[item.aggregate_type][0].version], "BACKWARD")
        for item in subjects
    }
    return LiveState(
        deployment,
        lock,
        ReadResult(DatabaseState(pipeline, environment, lock.source, DEPLOYED, DETAILS)),
        ReadResult(
            KafkaState(
                pipeline,
                environment.kafka,
                "k1",
                lock.topics,
                topics,
                actual,
                cluster,
                dead_letter_count=0,
                misplaced_keys={},
                internal_topics=INTERNAL_TOPICS,
            )
        ),
        ReadResult(RegistryState(subjects, subjects_in_registry, lock)),
        ReadResult(connect(deployment, lock)),
        DEPLOYED.wal_position,
        dict(registered),
        5,
    )


def connect(deployment: Deployment, lock: Lock) -> ConnectState:
    """Return a RUNNING connector with the rendered config."""
    config = deployment.render(lock)
    versions = {value: __version__ for key, value in config.items() if CLASS_KEYS.fullmatch(key)}
    versions[config["connector.class"]] = "3.7.0.Final"
    observed = ObservedConnect(
        ActualConnector(config, RUNNING, OFFSETS),
        "k1",
        versions,
        [Worker("http://a", versions)],
        "http://a",
        [],
        [],
        Validation({}, []),
    )
    return ConnectState(deployment.pipeline.connector.name, config, observed, "running", "required", "k1")


def with_error(live: LiveState, endpoint: Endpoint) -> LiveState:
    """Return the live state with an endpoint of Connect that could not be read."""
    state = live.connect.value
    assert state is not None
    observed = replace(state.observed, errors={endpoint: UnreachableError("no response within 5 s")})
    if endpoint == "connectors":
        observed = replace(observed, actual=ActualConnector(None, None, []))
    if endpoint == "offsets":
        observed = replace(observed, actual=replace(observed.actual, offsets=[]))
    return replace(live, connect=ReadResult(replace(state, observed=observed)))


def with_live(live: LiveState, changes: dict[str, str | None]) -> LiveState:
    """Return the live state with changed keys of the live connector config. None removes a key."""
    state = live.connect.value
    assert state is not None
    config = {**(state.observed.actual.config or {}), **changes}
    retained: Any = {key: value for key, value in config.items() if value is not None}
    observed = replace(state.observed, actual=replace(state.observed.actual, config=retained))
    return replace(live, connect=ReadResult(replace(state, observed=observed)))
