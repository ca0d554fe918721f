"""Failures of the matrix. Each function makes one failure happen to the marked event, and waits until it is over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Event as Signal

import psycopg
import requests
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.integration.receiving.matrix.case import (
    EVENTS,
    MARKED,
    MARKED_OFFSET,
    MARKED_PARTITION,
    PARTITIONS,
    Case,
    is_blocked,
)
from tests.integration.receiving.matrix.dependency import Answer
from tests.integration.receiving.matrix.members import SECONDS, Member
from tests.integration.receiving.matrix.outcomes import DEAD_LETTER, ONCE, Outcome
from tests.integration.receiving.matrix.victim import crash

from outbox_events import DeadLetterTopic, Event, Reaction, Retries, default_reaction
from outbox_events.kafka.record import PRODUCER_SETTINGS
from outbox_events.waiting import Observation, wait_for

POLL_SECONDS = 6
UNAVAILABLE_CALLS = 12
TERMINATE = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = %s"


@dataclass(frozen=True)
class Failure:
    """One failure, and the outcome that a strategy usually promises for it."""

    name: str
    text: str
    run: Callable[[Case], None]
    usual: Outcome = ONCE


def crash_before_commit(case: Case) -> None:
    crash(case.setup, case.entry.name, "before_commit", MARKED)
    case.join()
    case.settle()


def crash_after_commit(case: Case) -> None:
    crash(case.setup, case.entry.name, "after_commit", MARKED)
    case.join()
    case.settle()


def poll_timeout(case: Case) -> None:
    """Make the dependency answer the retry of a call after max.poll.interval.ms has expired."""
    taken = Signal()
    case.dependency.answer(Answer(503), Answer(delay_s=POLL_SECONDS + 1), Answer(), event_id=MARKED)

    def call_slowly(event: Event) -> None:
        case.dependency.call(event.event_id)
        # On a slow machine, the group takes longer than the answer to assign the partition to the second receiver.
        assert event.event_id != MARKED or taken.wait(SECONDS)

    # The receiver ends after the event, because its return to the group would be another failure, a rebalance.
    case.join(handle=call_slowly, settings={"max.poll.interval.ms": POLL_SECONDS * 1000}, until={MARKED})
    case.wait("the retry of the call", lambda: case.dependency.calls(MARKED) == 2)
    second = case.join(handle=call(case))
    place = (case.setup.topic, MARKED_PARTITION)
    # With stored offsets, the second receiver waits for the first one's transaction while it accepts the partition.
    case.wait("the second receiver", lambda: place in second.strategy.partitions or is_blocked(case))
    taken.set()
    case.settle()


def concurrent_deliveries(case: Case) -> None:
    deliver_twice(case, 200)


def first_rolls_back(case: Case) -> None:
    deliver_twice(case, 500)


def deliver_twice(case: Case, first_status: int) -> None:
    """Deliver the event to two receivers. The handler of the first ends when the second has called or is waiting."""
    case.counts_calls = True
    case.dependency.answer(Answer(first_status), Answer(), event_id=MARKED)

    def both_delivered() -> Observation[bool]:
        return Observation(True if case.dependency.calls(MARKED) > 1 or is_blocked(case) else None, "")

    def call_and_wait(event: Event) -> None:
        try:
            case.dependency.call(event.event_id)
        finally:
            if event.event_id == MARKED:
                wait_for("the second delivery", both_delivered, seconds=SECONDS, interval=0.05)

    first = case.join(handle=call_and_wait)
    case.wait("the first delivery", lambda: case.dependency.calls(MARKED) == 1)
    again = f"{case.setup.group}-again"
    start_group_at_marked(case, again)
    second = case.join(handle=call(case), settings={"group.id": again}, until={MARKED})
    case.settle(first)
    case.wait("the end of the second receiver", lambda: not second.is_running or starts_after_marked(case, second))


def starts_after_marked(case: Case, member: Member) -> bool:
    """Return whether a stored position let the member skip the event, so that it continues with later events."""
    return member.strategy.starts.get((case.setup.topic, MARKED_PARTITION), 0) > MARKED_OFFSET


def start_group_at_marked(case: Case, group: str) -> None:
    """Commit the offsets of another group, so that the group's first event is the marked event."""
    ends = dict.fromkeys(range(PARTITIONS), EVENTS // PARTITIONS) | {MARKED_PARTITION: MARKED_OFFSET}
    consumer = Consumer({"bootstrap.servers": case.setup.bootstrap, "group.id": group})
    offsets = [TopicPartition(case.setup.topic, *place) for place in ends.items()]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()


def produced_twice(case: Case) -> None:
    case.send(MARKED)
    case.join(batch_size=5)
    case.settle()


def rebalance_eager(case: Case) -> None:
    rebalance(case, "range")


def rebalance_cooperative(case: Case) -> None:
    rebalance(case, "cooperative-sticky")


def rebalance(case: Case, assignor: str) -> None:
    """Let a second receiver join while the first handles a batch and has more events of its partitions in its queue."""
    case.settings = {"partition.assignment.strategy": assignor}
    handling, joined = Signal(), Signal()

    def hold(event: Event) -> None:
        if event.event_id == MARKED:
            handling.set()
            assert joined.wait(SECONDS)

    case.join(batch_size=4, handle=hold)
    case.wait("the batch", handling.is_set)
    second = case.join(batch_size=4)
    case.wait("the second member", lambda: count_members(case) == len(case.members))
    joined.set()
    case.wait("partitions of the second receiver", lambda: bool(second.strategy.partitions))
    case.settle()


def count_members(case: Case) -> int:
    """Count the members that have joined. With a cooperative assignor, the group is stable before a partition moves."""
    admin = AdminClient({"bootstrap.servers": case.setup.bootstrap})
    (described,) = admin.describe_consumer_groups([case.setup.group]).values()
    return len(described.result(SECONDS).members)


def poison(case: Case) -> None:
    """Make the handler of the event always fail."""
    case.has_dead_letters = True
    case.create_topic(case.dead_letter_topic, 1)
    producer = Producer({"bootstrap.servers": case.setup.bootstrap, **PRODUCER_SETTINGS})

    def fail(event: Event) -> None:
        if event.event_id == MARKED:
            raise ValueError(event.event_id)

    case.join(batch_size=5, handle=fail, recoverer=DeadLetterTopic(producer, case.dead_letter_topic))
    case.settle()


def dependency_down(case: Case) -> None:
    """Make the dependency answer 503 to more calls than an event has attempts."""
    case.dependency.answer(Answer(503))
    patient = Retries(attempts=1, first_delay_s=0.1, jitter=0, reaction=wait_for_dependency)
    case.join(handle=call(case), retries=patient)
    case.wait("calls without success", lambda: case.dependency.calls() >= UNAVAILABLE_CALLS)
    case.dependency.answer(Answer())
    case.settle()
    assert case.dependency.calls() >= UNAVAILABLE_CALLS + EVENTS


def wait_for_dependency(error: Exception) -> Reaction:
    return Reaction.WAIT if isinstance(error, requests.HTTPError) else default_reaction(error)


def connection_terminated(case: Case) -> None:
    """Make the database terminate the connection of the open transaction in the middle of a batch."""
    terminated = Signal()

    def terminate(event: Event) -> None:
        if event.event_id == MARKED and not terminated.is_set():
            terminated.set()
            with psycopg.connect(case.setup.dsn, autocommit=True) as connection:
                assert connection.execute(TERMINATE, [case.setup.group]).fetchall()

    case.join(batch_size=5, handle=terminate)
    case.settle()
    assert terminated.is_set()


def call(case: Case) -> Callable[[Event], None]:
    """Return a handler that calls the dependency."""
    return lambda event: case.dependency.call(event.event_id)


FAILURES = [
    Failure("crash-before-commit", "the process ends before the transaction commits", crash_before_commit),
    Failure(
        "crash-after-commit",
        "the process ends after the transaction commits and before the offset is committed",
        crash_after_commit,
    ),
    Failure(
        "poll-timeout",
        "the dependency responds to a retry after `max.poll.interval.ms`, so another receiver takes over",
        poll_timeout,
    ),
    Failure(
        "two-deliveries",
        "another receiver receives the event while the first receiver handles it",
        concurrent_deliveries,
        replace(ONCE, calls=1),
    ),
    Failure(
        "first-rolls-back",
        "as `two-deliveries`, but the dependency responds with 500 to the first receiver, which rolls back",
        first_rolls_back,
        replace(ONCE, calls=2),
    ),
    Failure("produced-twice", "the topic contains the event twice, with the same id", produced_twice),
    Failure("rebalance-range", "a receiver joins the group during a batch; assignor `range`", rebalance_eager),
    Failure(
        "rebalance-sticky",
        "a receiver joins the group during a batch; assignor `cooperative-sticky`",
        rebalance_cooperative,
    ),
    Failure(
        "poison", "no attempt can apply the event, so it is sent to the dead letter topic once", poison, DEAD_LETTER
    ),
    Failure(
        "dependency-down", "the dependency responds with 503 to more calls than an event has attempts", dependency_down
    ),
    Failure("connection-lost", "the database closes the connection during a batch", connection_terminated),
]
