"""Failures of the matrix. Each function lets one failure happen to the marked event, and waits until it is over."""

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
    LAST,
    MARKED,
    MARKED_OFFSET,
    MARKED_PARTITION,
    PARTITIONS,
    Case,
    is_blocked,
)
from tests.integration.receiving.matrix.members import SECONDS
from tests.integration.receiving.matrix.outcomes import DEAD_LETTER, ONCE, Outcome
from tests.integration.receiving.matrix.victim import crash

from outbox_kit.receiving import DeadLetterTopic, Event, Reaction, Retries, default_reaction
from outbox_kit.sending.record import PRODUCER_SETTINGS
from outbox_kit.waiting import Observation, wait_for

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
    """Hold the first receiver in its handler until the partition is assigned to the second."""
    taken = Signal()

    def hold(event_id: str, number: int) -> int:
        if (event_id, number) == (MARKED, 1):
            assert taken.wait(SECONDS)
        return 200

    case.dependency.answer = hold
    # It ends after the event, since its return to the group would be a failure of its own: a rebalance.
    case.join(handle=call(case), settings={"max.poll.interval.ms": POLL_SECONDS * 1000}, until={MARKED})
    case.wait("the call of the dependency", lambda: case.dependency.calls[MARKED] == 1)
    second = case.join(handle=call(case))
    place = (case.setup.topic, MARKED_PARTITION)
    case.wait("the second receiver", lambda: place in second.strategy.partitions)
    taken.set()
    case.settle()


def concurrent_deliveries(case: Case) -> None:
    deliver_twice(case, 200)


def first_rolls_back(case: Case) -> None:
    deliver_twice(case, 500)


def deliver_twice(case: Case, first_status: int) -> None:
    """Deliver the event to two receivers. The dependency answers the first when the second has called or waits."""
    case.counts_calls = True

    def answer(event_id: str, number: int) -> int:
        if (event_id, number) != (MARKED, 1):
            return 200
        both = lambda: Observation(True if case.dependency.calls[MARKED] > 1 or is_blocked(case) else None, "")  # noqa: E731
        wait_for("the second delivery", both, seconds=SECONDS, interval=0.05)
        return first_status

    case.dependency.answer = answer
    first = case.join(handle=call(case))
    case.wait("the first delivery", lambda: case.dependency.calls[MARKED] == 1)
    again = f"{case.setup.group}-again"
    start_group_at_marked(case, again)
    until = {MARKED, LAST[MARKED_PARTITION]}  # a stored position can be after the event
    second = case.join(handle=call(case), settings={"group.id": again}, until=until)
    case.settle(first)
    case.wait("the end of the second receiver", lambda: not second.is_running)


def start_group_at_marked(case: Case, group: str) -> None:
    """Commit the offsets of another group, so that its first event is the marked one."""
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
    """Let a second receiver join while the first handles a batch, with more events of its partitions in its queue."""
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
    """Count the members that have joined. With a cooperative assignor the group is stable before a partition moves."""
    admin = AdminClient({"bootstrap.servers": case.setup.bootstrap})
    (described,) = admin.describe_consumer_groups([case.setup.group]).values()
    return len(described.result(SECONDS).members)


def poison(case: Case) -> None:
    """Let the handler of the event always fail."""
    case.has_dead_letters = True
    case.create_topic(case.dead_letter_topic, 1)
    producer = Producer({"bootstrap.servers": case.setup.bootstrap, **PRODUCER_SETTINGS})

    def fail(event: Event) -> None:
        if event.event_id == MARKED:
            raise ValueError(event.event_id)

    case.join(batch_size=5, handle=fail, recoverer=DeadLetterTopic(producer, case.dead_letter_topic))
    case.settle()


def dependency_down(case: Case) -> None:
    """Let the dependency answer 503 to the first calls, more often than an event has attempts."""

    def answer(event_id: str, number: int) -> int:
        del event_id, number
        return 503 if sum(case.dependency.calls.values()) <= UNAVAILABLE_CALLS else 200

    case.dependency.answer = answer
    patient = Retries(attempts=1, first_delay_s=0.1, jitter=0, reaction=wait_for_dependency)
    case.join(handle=call(case), retries=patient)
    case.settle()
    assert sum(case.dependency.calls.values()) >= UNAVAILABLE_CALLS + EVENTS


def wait_for_dependency(error: Exception) -> Reaction:
    return Reaction.WAIT if isinstance(error, requests.HTTPError) else default_reaction(error)


def connection_terminated(case: Case) -> None:
    """Let the database end the connection of the open transaction, in the middle of a batch."""
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
    Failure("crash-before-commit", "crash before the commit of the database", crash_before_commit),
    Failure("crash-after-commit", "crash between the commits of database and offset", crash_after_commit),
    Failure("poll-timeout", "poll timeout: a slow call lets another receiver take over", poll_timeout),
    Failure("concurrent-deliveries", "two deliveries at once", concurrent_deliveries, replace(ONCE, calls=1)),
    Failure("first-rolls-back", "the same, and the first rolls back", first_rolls_back, replace(ONCE, calls=2)),
    Failure("produced-twice", "produced twice with one id", produced_twice),
    Failure("rebalance-eager", "rebalance in a batch, assignor range", rebalance_eager),
    Failure("rebalance-cooperative", "rebalance in a batch, assignor cooperative-sticky", rebalance_cooperative),
    Failure("poison", "an event that no attempt applies", poison, DEAD_LETTER),
    Failure("dependency-down", "dependency answers 503 for a while", dependency_down),
    Failure("connection-terminated", "the database ends the connection in a batch", connection_terminated),
]
