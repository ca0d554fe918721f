"""What must move between two looks: slot, offset, heartbeat. A state that says RUNNING proves none of it."""

from __future__ import annotations

from dataclasses import dataclass

from outbox_kit.connect import state as connect_state
from outbox_kit.connect.client import ConnectorStatus
from outbox_kit.connect.lifecycle import is_running
from outbox_kit.deployment import Deployment
from outbox_kit.errors import OutboxKitError, WaitTimeoutError
from outbox_kit.kafka import verify_queries as kafka_inspection
from outbox_kit.postgres import verify_queries as postgres_inspection
from outbox_kit.rules import Check, Finding, Rule, Severity, judge, rule, unknown
from outbox_kit.verification.routes import number
from outbox_kit.verification.snapshot import World, database
from outbox_kit.waiting import Seen, wait_for

# Two heartbeats, and what a busy machine may take on top.
HEARTBEATS, GRACE_S, LOOK_EVERY_S = 2, 5.0, 0.2
HEARTBEAT_MS = 10_000
STUCK = "RUNNING and stuck: a missing topic, a partition beyond the count, a broker that does not answer"


@dataclass(frozen=True)
class Sample:
    """One look at what must move; None where it is not there."""

    position: postgres_inspection.Position | None
    heartbeat: int | None
    offset: int
    status: ConnectorStatus | None
    seeded: bool = False


@dataclass(frozen=True)
class Movement:
    """Two looks at it. The reader of `settled` is the one to compare: the first row after a seed makes a new one."""

    first: Sample
    settled: Sample
    last: Sample
    seconds: float


RULES: list[Rule[Movement]] = []


@rule(
    RULES,
    "postgres.slot-moving",
    guards="the slot's confirmed position advances: else the server keeps WAL until its disk is full",
    remedy=f"{STUCK}; see the Connect worker's log",
)
def _slot(movement: Movement) -> Finding:
    first, last = movement.first.position, movement.last.position
    return _position(movement, first.confirmed if first else None, last.confirmed if last else None)


@rule(
    RULES,
    "kafka.heartbeat",
    guards="heartbeats arrive on their topic: the way from the database through the worker to Kafka is open",
    remedy=f"{STUCK}; see the Connect worker's log",
)
def _heartbeat(movement: Movement) -> Finding:
    return _grown(movement, movement.first.heartbeat, movement.last.heartbeat)


@rule(
    RULES,
    "connect.offsets-moving",
    guards="the connector commits its position",
    remedy=f"{STUCK}; see the Connect worker's log",
)
def _offset(movement: Movement) -> Finding:
    return _position(movement, movement.first.offset, movement.last.offset)


@rule(
    RULES,
    "connect.restarts",
    guards="the task stays up: the same server process reads the slot at both looks, and the state is RUNNING at both",
    remedy="a task that comes and goes: see the Connect worker's log for what it dies of",
    severity=Severity.WARNING,
)
def _restarts(movement: Movement) -> Finding:
    first, last = movement.settled, movement.last
    readers = [sample.position.reader if sample.position else None for sample in (first, last)]
    states = [sample.status.words if sample.status else "no status" for sample in (first, last)]
    good = readers[0] == readers[1] and is_running(first.status) and is_running(last.status)
    seen = f"server process {readers[0]}, then {readers[1]}; {states[0]}, then {states[1]}"
    return Finding(good, "none" if good else seen, "none between two looks")


def _grown(movement: Movement, first: int | None, last: int | None) -> Finding:
    expected = f"an advance within {movement.seconds:g} s"
    if first is None or last is None:
        return Finding(None, "not there", expected)
    return Finding(last > first, f"{last - first:+} since {first}", expected)


def _position(movement: Movement, first: int | None, last: int | None) -> Finding:
    """Debezium looks for its place in the WAL until the first transaction after a seed, and confirms nothing."""
    found = _grown(movement, first, last)
    if found.good is False and movement.last.seeded:
        return Finding(None, "no transaction since the connector was made", found.expected, "send the canary")
    return found


def check(world: World, *, flown: bool) -> list[Check]:
    """Wait until everything has moved, for two heartbeats at most. Unknown where the connector does not run.

    `flown` says that a canary was sent since `world` was looked at.
    """
    first = _first(world)
    why = _hindrance(first)
    if first is None or why:
        return unknown(RULES, why)
    seconds = _patience_s(world)
    settled = last = first

    def look() -> Seen[bool]:
        nonlocal last
        last = sample(world.deployment)
        done = all(_moved(Movement(first, settled, last, seconds)))
        return Seen(True if done else None, "something stands still")

    try:
        if flown:
            settled = sample(world.deployment)
        wait_for("slot, offset and heartbeat to advance", look, seconds=seconds, every=LOOK_EVERY_S)
    except WaitTimeoutError:
        pass  # the rules say what has not moved
    except OutboxKitError as error:
        return unknown(RULES, error.message)
    return judge(RULES, Movement(first, settled, last, seconds))


def _moved(movement: Movement) -> list[bool]:
    return [each.look(movement).good is not False for each in RULES[:3]]


def _first(world: World) -> Sample | None:
    """The first look, out of what was read already, but for the heartbeat."""
    if world.postgres.look is None or world.kafka.look is None or world.connect.look is None:
        return None
    slot, actual = world.postgres.look.details.slot, world.connect.look.observed.actual
    here = slot is not None and slot["confirmed"] is not None
    position = postgres_inspection.Position(slot["confirmed"], slot["active_pid"]) if slot and here else None
    return _sample(position, world.heartbeat, actual)


def _hindrance(first: Sample | None) -> str:
    """Why nothing can move, in words; empty where it should."""
    if first is None:
        return "a system does not answer"
    if not is_running(first.status):
        return "the connector does not run"
    if first.position is None or first.position.reader is None:
        return "nobody reads the slot"
    return ""


def _patience_s(world: World) -> float:
    config = world.connect.look.observed.actual.config if world.connect.look else None
    return HEARTBEATS * number((config or {}).get("heartbeat.interval.ms"), HEARTBEAT_MS) / 1000 + GRACE_S


def sample(deployment: Deployment) -> Sample:
    """One look at everything that must move. Raises UnreachableError, RejectedError."""
    name, pipeline = deployment.pipeline.connector.name, deployment.pipeline
    with database(deployment) as connection:
        position = postgres_inspection.position(connection, pipeline.source.slot)
    heartbeat = kafka_inspection.end_offset(deployment.environment.kafka, pipeline.heartbeat_topic)
    actual = connect_state.read_actual(deployment.connect, name)
    return _sample(position, heartbeat, actual)


def _sample(
    position: postgres_inspection.Position | None, heartbeat: int | None, actual: connect_state.ActualConnector
) -> Sample:
    offsets = [entry["offset"] for entry in actual.offsets if entry.get("offset")]
    # `messageType` comes with the first message that Debezium has worked off.
    seeded = all("messageType" not in offset for offset in offsets)
    return Sample(position, heartbeat, connect_state.position(actual), actual.status, seeded)
