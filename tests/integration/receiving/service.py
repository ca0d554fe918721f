"""A service under test, with topics, a database, handlers with countable effects, and a producer of events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import psycopg
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from outbox_events import Event, Handlers, Receiver, Strategy
from outbox_events.kafka.record import PRODUCER_SETTINGS
from outbox_events.waiting import Observation, wait_for

SECONDS = 60


@dataclass
class Service:
    """One consumer group with its own topic, and the table `effect` in the database."""

    bootstrap: str
    dsn: str
    topic: str
    group: str = field(default_factory=lambda: f"group-{uuid4().hex[:8]}")
    handlers: Handlers[psycopg.Connection] = field(default_factory=Handlers)

    def connect(self) -> psycopg.Connection:
        return psycopg.connect(self.dsn)

    def send(self, *events: tuple[str, str], partition: int = -1, event_type: str = "Changed") -> None:
        """Produce events (key, event id)."""
        producer = Producer({"bootstrap.servers": self.bootstrap, **PRODUCER_SETTINGS})
        for key, event_id in events:
            headers = [("event_id", event_id.encode()), ("event_type", event_type.encode())]
            producer.produce(self.topic, key=key, value=event_id, headers=headers, partition=partition)
        assert producer.flush(SECONDS) == 0

    def settings(self, **changes: object) -> Mapping[str, Any]:
        return {"bootstrap.servers": self.bootstrap, "group.id": self.group, "auto.commit.interval.ms": 100, **changes}

    def receiver(
        self, strategy: Strategy[Any], *, settings: Mapping[str, Any] | None = None, **options: object
    ) -> Receiver[Any]:
        merged = {**self.settings(), **(settings or {})}
        return Receiver(merged, [self.topic], strategy, self.handlers, **options)  # type: ignore[arg-type]

    def write_effect(self, event: Event, connection: psycopg.Connection) -> None:
        """Handle an event by inserting a row. Only the strategy prevents duplicates of this row."""
        statement = "insert into effect (consumer_group, event_id, aggregate_id) values (%s, %s, %s)"
        connection.execute(statement, [self.group, event.event_id, event.aggregate_id])

    def effects(self) -> list[str]:
        """Return the ids of the applied events, in the order of their effects."""
        statement = "select event_id from effect where consumer_group = %s order by position"
        with psycopg.connect(self.dsn) as connection:
            return [row[0] for row in connection.execute(statement, [self.group])]


def run_until(receiver: Receiver[Any], subject: str, condition: Callable[[], bool], seconds: float = SECONDS) -> None:
    """Poll until the condition holds."""

    def poll() -> Observation[bool]:
        receiver.poll(0.1)
        return Observation(True if condition() else None, str(receiver.counters.to_dict()))

    wait_for(subject, poll, seconds=seconds, interval=0)


def provide_topic(admin: AdminClient, topic: NewTopic) -> None:
    """Create a topic, and wait until the broker has it, because the controller confirms the creation earlier."""
    admin.create_topics([topic])[topic.topic].result(SECONDS)

    def poll() -> Observation[bool]:
        found = admin.list_topics(topic.topic, timeout=SECONDS).topics[topic.topic]
        is_complete = found.error is None and len(found.partitions) == topic.num_partitions
        return Observation(is_complete or None, str(found.error))

    wait_for(f"topic {topic.topic}", poll, seconds=SECONDS, interval=0.02)
