"""One cell of the matrix: a topic with events, a group that receives them, and the counts at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

import psycopg
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.receiving.matrix.dependency import Dependency
from tests.integration.receiving.matrix.entries import Entry, Setup
from tests.integration.receiving.matrix.members import SECONDS, Member
from tests.integration.receiving.matrix.outcomes import Outcome
from tests.integration.receiving.matrix.topics import count_values
from tests.integration.receiving.service import provide_topic

from outbox_events.kafka.record import PRODUCER_SETTINGS
from outbox_events.waiting import Observation, wait_for

PARTITIONS = 3
EVENTS = 30
MARKED = "e13"
"""The event that the failure affects, which is in the middle of its partition."""
MARKED_PARTITION = 1
MARKED_OFFSET = 4
LAST = [f"last{partition}" for partition in range(PARTITIONS)]
"""Events that are sent after the failure. When these are settled, all earlier events are settled, too."""


@dataclass(frozen=True)
class Servers:
    """Addresses of Kafka, PostgreSQL and WireMock."""

    bootstrap: str
    dsn: str
    wiremock: str


@dataclass
class Case:
    """One strategy under one failure."""

    setup: Setup
    entry: Entry
    dependency: Dependency
    members: list[Member] = field(default_factory=list)
    counts_calls: bool = False
    has_dead_letters: bool = False
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def dead_letter_topic(self) -> str:
        return f"{self.setup.group}.dead-letter"

    def send(self, *event_ids: str) -> dict[str, tuple[int, int]]:
        """Produce events, each to the partition that its number determines. Return their partitions and offsets."""
        places: dict[str, tuple[int, int]] = {}

        def delivered(_error: KafkaError | None, message: Message) -> None:
            places[bytes(message.value() or b"").decode()] = (message.partition() or 0, message.offset() or 0)

        producer = Producer({"bootstrap.servers": self.setup.bootstrap, **PRODUCER_SETTINGS})
        for event_id in event_ids:
            number = int(event_id.removeprefix("last").removeprefix("e"))
            headers = [("event_id", event_id.encode()), ("event_type", b"Changed")]
            producer.produce(
                self.setup.topic,
                key=f"k{number % 6}",
                value=event_id,
                headers=headers,
                partition=number % PARTITIONS,
                on_delivery=delivered,
            )
        assert producer.flush(SECONDS) == 0
        return places

    def join(self, **options: Any) -> Member:  # noqa: ANN401 - options of Member
        """Add a member to the group."""
        options["settings"] = {**self.settings, **options.get("settings", {})}
        member = Member(replace(self.setup, member=len(self.members)), self.entry, **options)
        self.members.append(member)
        return member

    def wait(self, subject: str, condition: Callable[[], bool], seconds: float = SECONDS) -> None:
        """Wait for a condition. Fail immediately if a member has failed."""

        def poll() -> Observation[bool]:
            for member in self.members:
                member.check()
            counters = [member.receiver.counters.to_dict() for member in self.members]
            starts = [member.strategy.starts for member in self.members]
            return Observation(True if condition() else None, f"{self.entry.name}: {counters}, started at {starts}")

        wait_for(subject, poll, seconds=seconds, interval=0.05)

    def settle(self, *members: Member) -> None:
        """Wait until the given members, by default all, have processed all events.

        A member that has joined again starts at the stored position, which can be after an event that it did not see.
        """
        places = self.send(*LAST)
        strategies = [member.strategy for member in members or self.members]

        def is_settled(event_id: str) -> bool:
            partition, offset = places[event_id]
            source = (self.setup.topic, partition)
            return any(event_id in each.settled or each.starts.get(source, 0) > offset for each in strategies)

        self.wait("the last events", lambda: all(map(is_settled, LAST)))

    def outcome(self) -> Outcome:
        """Count the effects, after the members have ended."""
        effects = self.entry.count(self.setup)
        expected = {f"e{number}" for number in range(EVENTS)} - {MARKED}
        others = {name: effects[name] for name in expected if effects[name] != 1}
        others |= {name: number for name, number in effects.items() if name not in {*expected, MARKED, *LAST}}
        calls = self.dependency.calls(MARKED) if self.counts_calls else 0
        dead_letters = (
            count_values(self.setup.bootstrap, self.dead_letter_topic, 1)[MARKED] if self.has_dead_letters else 0
        )
        return Outcome(effects[MARKED], calls, dead_letters, others)

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic, which remains until the stack is stopped."""
        provide_topic(AdminClient({"bootstrap.servers": self.setup.bootstrap}), NewTopic(name, partitions, 1))


@contextmanager
def opened(servers: Servers, entry: Entry) -> Iterator[Case]:
    """Yield a case whose topic contains the events. Its members are stopped at the end."""
    name = f"matrix-{uuid4().hex[:10]}"
    setup = Setup(servers.bootstrap, servers.dsn, f"{name}.events", name)
    case = Case(setup, entry, Dependency(servers.wiremock, name))
    case.create_topic(setup.topic, PARTITIONS)
    if entry.sends:
        case.create_topic(setup.output, 1)
    case.send(*(f"e{number}" for number in range(EVENTS)))
    try:
        yield case
    finally:
        for member in case.members:
            member.stop()


def is_blocked(case: Case) -> bool:
    """Return whether a connection of the group waits for the transaction of another connection."""
    statement = "select 1 from pg_stat_activity where application_name = %s and wait_event_type = 'Lock'"
    with psycopg.connect(case.setup.dsn) as connection:
        return connection.execute(statement, [case.setup.group]).fetchone() is not None
