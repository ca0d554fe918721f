"""Runs the checks of every system, and the canary."""

from __future__ import annotations

from collections.abc import Callable

from outbox_kit.checking import Check, Status
from outbox_kit.connect import checks as connect_checks
from outbox_kit.connect import state as connect_state
from outbox_kit.deployment import Deployment
from outbox_kit.errors import OutboxKitError
from outbox_kit.kafka import checks as kafka_checks
from outbox_kit.kafka import state as kafka_state
from outbox_kit.pipeline import Lock
from outbox_kit.postgres import checks as postgres_checks
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres import state as postgres_state
from outbox_kit.progress import Progress
from outbox_kit.registry import checks as registry_checks
from outbox_kit.registry import state as registry_state
from outbox_kit.verification import canary

# Without these the canary cannot arrive: say so at once instead of waiting for it.
CANARY_NEEDS = (
    "connect.reachable",
    "connect.running",
    "kafka.reachable",
    "kafka.topics",
    "postgres.reachable",
    "postgres.table",
)


def verify(deployment: Deployment, progress: Progress, *, canary_seconds: float = 60) -> list[Check]:
    """Every check, in a fixed order. A system that does not answer is a failed check, not an exception."""
    lock = deployment.lock()
    results: list[Check] = []
    for system, run in (
        ("postgres", _postgres),
        ("kafka", _kafka),
        ("registry", _registry),
        ("connect", _connect),
    ):
        progress(f"check {system}")
        results += _guarded(f"{system}.reachable", lambda run=run: run(deployment, lock))  # type: ignore[misc]
    if Status.FAIL in [result.status for result in results if result.id in CANARY_NEEDS]:
        return [*results, canary.not_sent()]
    progress("send a canary through the connector")
    return [
        *results,
        *_guarded("canary.delivered", lambda: canary.run(deployment, lock, seconds=canary_seconds)),
    ]


def _guarded(identifier: str, run: Callable[[], list[Check]]) -> list[Check]:
    try:
        return run()
    except OutboxKitError as error:
        return [Check(identifier, Status.FAIL, error.message, "an answer", error.hint)]


def _postgres(deployment: Deployment, lock: Lock | None) -> list[Check]:
    with postgres_client.connected(deployment.environment.source) as connection:
        actual = postgres_state.read_actual(connection, deployment.pipeline, deployment.environment)
    return postgres_checks.run(deployment.pipeline, deployment.environment, actual, lock.source if lock else None)


def _kafka(deployment: Deployment, _: Lock | None) -> list[Check]:
    topics = kafka_state.desired_topics(deployment.pipeline, deployment.environment)
    return kafka_checks.run(topics, deployment.kafka.describe(topic.name for topic in topics))


def _registry(deployment: Deployment, lock: Lock | None) -> list[Check]:
    subjects = registry_state.desired_subjects(deployment.pipeline)
    return registry_checks.run(subjects, registry_state.read_actual(deployment.registry, subjects), lock)


def _connect(deployment: Deployment, lock: Lock | None) -> list[Check]:
    name = deployment.pipeline.connector.name
    return connect_checks.run(
        name,
        deployment.render(lock),
        connect_state.read_actual(deployment.connect, name),
        plugins=deployment.connect.plugins(),
    )
