"""Runs the checks of every system, the canary, and the looks at what must move."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from outbox_kit.connect import checks as connect_checks
from outbox_kit.deployment import Deployment
from outbox_kit.errors import RefusedError
from outbox_kit.kafka import checks as kafka_checks
from outbox_kit.pipeline import CANARY_AGGREGATE, Lock
from outbox_kit.postgres import checks as postgres_checks
from outbox_kit.postgres import slot_checks
from outbox_kit.progress import Progress
from outbox_kit.registry import checks as registry_checks
from outbox_kit.rules import Check, Rule, Status, failed, judge, unknown
from outbox_kit.verification import canary, cross_checks, progress_checks
from outbox_kit.verification.canary_contract import Told
from outbox_kit.verification.routes import router_prefix, routes
from outbox_kit.verification.snapshot import Answer, World, read_world

L = TypeVar("L")

# Without these the canary cannot arrive: say so at once instead of waiting for it.
CANARY_NEEDS = (
    "postgres.reachable",
    "postgres.table",
    "postgres.slot",
    "postgres.slot-active",
    "kafka.reachable",
    "kafka.topics",
    "connect.reachable",
    "connect.connector",
    "connect.running",
)


def verify(deployment: Deployment, progress: Progress, *, canary_seconds: float | None = 60) -> list[Check]:
    """Every check, always all of them and in the same order. A system that is down is a failed check, no exception.

    `canary_seconds` bounds the canary; None sends none. Raises RefusedError before the first apply.
    """
    lock = deployed_lock(deployment)
    world = read_world(deployment, lock, progress)
    checks = [
        *_system([*postgres_checks.RULES, *slot_checks.RULES], world.postgres),
        *_system(kafka_checks.RULES, world.kafka),
        *_system(registry_checks.RULES, world.registry),
        *_system(connect_checks.RULES, world.connect),
        *judge(cross_checks.RULES, world),
    ]
    flown = _canary(world, checks, canary_seconds, progress)
    progress("look again at what must move")
    sent = any(check.status is not Status.UNKNOWN for check in flown)
    return [*checks, *progress_checks.check(world, flown=sent), *flown]


def deployed_lock(deployment: Deployment) -> Lock:
    """The lock file of what was deployed. Raises RefusedError where nothing was."""
    lock = deployment.lock()
    if lock is None or lock.source is None:
        name, where = deployment.pipeline.name, deployment.environment.name
        raise RefusedError(f"pipeline {name!r} is not deployed to {where!r} yet: run `outbox apply`")
    return lock


def _system(rules: Sequence[Rule[L]], answer: Answer[L]) -> list[Check]:
    """The rules of one system; where it does not answer, the first one fails and the others are unknown."""
    if answer.look is not None:
        return judge(rules, answer.look)
    error = answer.error
    first = failed(rules[0], error.message if error else "no answer", "an answer", error.hint if error else "")
    return [first, *unknown(rules[1:], f"see {first.id}")]


def _canary(world: World, checks: list[Check], seconds: float | None, progress: Progress) -> list[Check]:
    if seconds is None:
        return unknown(canary.RULES, "not sent: --no-canary")
    wanted = world.deployment.environment.connector.state
    if wanted != "running":
        return unknown(canary.RULES, f"not sent: connector.state is {wanted}")
    failures = [check.id for check in checks if check.id in CANARY_NEEDS and check.status is Status.FAIL]
    if failures:
        return unknown(canary.RULES, f"not sent: see {', '.join(failures)}")
    progress("send a canary through the connector")
    return canary.check(world.deployment, _told(world), seconds=seconds)


def _told(world: World) -> Told:
    """What the live config says of the canary's record."""
    config = cross_checks.live(world) or {}
    route = routes(config).get(CANARY_AGGREGATE)
    topic = world.deployment.pipeline.topic_of(CANARY_AGGREGATE)
    live = world.kafka.look.actual.get(topic) if world.kafka.look else None
    return Told(
        strict=router_prefix(config) is not None,
        partitions=route.partitions if route else live.partitions if live else 1,
        epoch=world.lock.source_epoch,
        schemas={entry.id: entry.text for entry in world.lock.schemas.get(CANARY_AGGREGATE, [])},
    )
