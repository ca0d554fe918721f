"""Run `verify`: check every system, send the canary, then check for progress."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from outbox_events.errors import RefusedError, RejectedError, UnreachableError
from outbox_kit.connect import checks as connect_checks
from outbox_kit.connect.connector_config import outbox_router, parse_int, router_routes
from outbox_kit.deployment import Deployment
from outbox_kit.deployment.preconditions import refuse_lost_lock
from outbox_kit.kafka import checks as kafka_checks
from outbox_kit.operations.state_comparison import StateComparison
from outbox_kit.pipeline import CANARY_AGGREGATE, Lock, LockedSource
from outbox_kit.postgres import checks as postgres_checks
from outbox_kit.postgres import slot_checks
from outbox_kit.registry import checks as registry_checks
from outbox_kit.results import Reporter
from outbox_kit.results.checks import Check, Finding, Rule, Status, evaluate, skip_rules
from outbox_kit.results.repair_commands import RECOVER_HINT
from outbox_kit.verification import canary, cross_checks, progress_checks, recent_rows, state_checks
from outbox_kit.verification.canary import CanaryContract
from outbox_kit.verification.live_state import LiveState, ReadResult, read_live_state
from outbox_kit.verification.recent_rows import OPEN_TRANSACTIONS

T = TypeVar("T")

# Time limit for each read request. A system that does not respond is reported after this time.
READ_LIMIT_S = 5
# If one of these checks fails, the canary cannot arrive or would be written to another system, so none is sent.
CANARY_PREREQUISITES = (
    "postgres.reachable",
    "postgres.identity",
    "postgres.table",
    "postgres.table-identity",
    "postgres.slot",
    "postgres.slot-active",
    "kafka.reachable",
    "kafka.cluster",
    "kafka.topics",
    "connect.reachable",
    "connect.cluster",
    "connect.connector",
    "connect.running",
)

# If one of these checks fails, `outbox apply` and `outbox restart` refuse to start the connector.
START_PREREQUISITES = (
    "postgres.identity",
    "postgres.slot",
    "postgres.slot-identity",
    "path.offset-not-ahead",
    "path.offset-covers-slot",
)


def verify(
    deployment: Deployment,
    progress: Reporter,
    *,
    canary_seconds: float | None = 60,
    states: StateComparison | None = None,
) -> list[Check]:
    """Return every check, always in the same order. The first check of an unreachable system fails.

    `canary_seconds` limits the wait for each record of the canary. If it is None, no canary is sent. If `states` is
    None, states are not compared, and the checks of states are omitted. Raises RefusedError before the first apply.
    """
    lock, source = deployed_lock(deployment)
    with deployment.bounded(READ_LIMIT_S) as bounded_deployment:
        live_state = read_live_state(bounded_deployment, lock, source, progress)
        checks = _default_checks(live_state, canary_seconds, progress)
    # Even if the connector has sent records after the start of an open transaction, consumers do not see them yet.
    passed_ids = {check.id for check in checks if check.status is Status.PASS}
    canary_arrived = passed_ids >= {"canary.delivered", OPEN_TRANSACTIONS}
    compared = state_checks.check(states, progress, canary_arrived=canary_arrived) if states else []
    has_open_transaction = any(check.id == OPEN_TRANSACTIONS and check.status is Status.FAIL for check in checks)
    return [*checks, *(_after_open_transactions(compared) if has_open_transaction else compared)]


def _after_open_transactions(checks: list[Check]) -> list[Check]:
    """Prepend a reference to the open transaction to the remedies of failed checks of states."""
    reason = f"first see {OPEN_TRANSACTIONS}, because records after an open transaction cannot be read; then "
    return [
        replace(check, remedy=f"{reason}{check.remedy}") if check.status is Status.FAIL else check for check in checks
    ]


def _default_checks(live_state: LiveState, canary_seconds: float | None, progress: Reporter) -> list[Check]:
    recent = recent_rows.read(live_state)
    checks = [
        *_system_checks([*postgres_checks.RULES, *slot_checks.RULES], live_state.postgres),
        *_system_checks(kafka_checks.RULES, live_state.kafka),
        *_system_checks(registry_checks.RULES, live_state.registry),
        *_system_checks(connect_checks.RULES, live_state.connect, connect_checks.check),
        *evaluate(cross_checks.RULES, live_state),
    ]
    checks = _with_start_remedies(checks)
    canary_checks = _canary_checks(live_state, checks, canary_seconds, progress)
    progress("check for progress")
    canary_sent = any(check.status is not Status.UNKNOWN for check in canary_checks)
    checks += [*progress_checks.check(live_state, canary_sent=canary_sent), *canary_checks]
    return [*checks, *recent_rows.check(live_state, recent, checks, progress)]


def _with_start_remedies(checks: list[Check]) -> list[Check]:
    """Replace remedies that start the connector with a reference to the failed check that prevents the start."""
    failed_ids = [check.id for check in checks if check.status is Status.FAIL]
    cause = next((name for name in START_PREREQUISITES if name in failed_ids), None)
    if cause is None:
        return checks
    remedy = f"see {cause}: its remedy also starts the connector"
    return [
        replace(check, remedy=remedy)
        if check.status is Status.FAIL and check.id in ("connect.running", "postgres.slot-active")
        else check
        for check in checks
    ]


def deployed_lock(deployment: Deployment) -> tuple[Lock, LockedSource]:
    """Return the lock file and its `source`. Raises RefusedError before the first apply, and during a recovery.

    Also raises RefusedError if topics have records although there is no lock file, for example in another checkout.
    """
    lock = deployment.lock()
    if lock is None or lock.source is None:
        pipeline, environment = deployment.pipeline.name, deployment.environment.name
        if lock is not None and lock.unfinished == "recover":
            raise RefusedError(f"the recovery of pipeline {pipeline!r} is not complete", RECOVER_HINT)
        with suppress(UnreachableError, RejectedError), deployment.bounded(READ_LIMIT_S) as bounded_deployment:
            refuse_lost_lock(bounded_deployment, lock)
        raise RefusedError(f"pipeline {pipeline!r} is not deployed to {environment!r} yet", "run `outbox apply`")
    return lock, lock.source


def _system_checks(
    rules: Sequence[Rule[T]], system: ReadResult[T], check: Callable[[T], list[Check]] | None = None
) -> list[Check]:
    """Evaluate the rules for a system. If it could not be read, the first rule fails, and all others are unknown."""
    if system.value is not None:
        return check(system.value) if check else evaluate(rules, system.value)
    message, hint = (system.error.message, system.error.hint) if system.error else ("no response", "")
    return [rules[0].check(Finding(False, message, "a response", hint)), *skip_rules(rules[1:], f"see {rules[0].id}")]


def _canary_checks(
    live_state: LiveState, checks: list[Check], seconds: float | None, progress: Reporter
) -> list[Check]:
    if seconds is None:
        return skip_rules(canary.RULES, "not sent: --no-canary")
    state = live_state.deployment.environment.connector.state
    if state != "running":
        return skip_rules(canary.RULES, f"not sent: connector.state is {state}")
    failed_ids = [check.id for check in checks if check.id in CANARY_PREREQUISITES and check.status is Status.FAIL]
    if failed_ids:
        return skip_rules(canary.RULES, f"not sent: see {', '.join(failed_ids)}")
    progress("send a canary through the connector")
    hooks = live_state.postgres.value.additional.hooks.text if live_state.postgres.value else ""
    return canary.check(live_state.deployment, _contract(live_state), seconds=seconds, hooks=hooks)


def _contract(live_state: LiveState) -> CanaryContract:
    """Return the contract for the canary's record, from the live config, the live topic and the lock file."""
    router = outbox_router(live_state.config or {})
    routes = router_routes(router) if router else ()
    route = next((route for route in routes if route.aggregate == CANARY_AGGREGATE), None)
    topics = live_state.kafka.value.actual if live_state.kafka.value else {}
    topic = topics.get(live_state.deployment.pipeline.topic_of(CANARY_AGGREGATE))
    return CanaryContract(
        is_strict=router is not None,
        partition_count=parse_int(route.partitions) if route else topic.partitions if topic else 1,
        source_epoch=live_state.lock.source_epoch,
        schemas={entry.id: entry.text for entry in live_state.lock.schemas.get(CANARY_AGGREGATE, [])},
    )
