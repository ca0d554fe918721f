"""Crashes and other events in the life of a consumer group, for the tests of its strategies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.receiving.service import SECONDS, Service, provide_topic

from outbox_events import Event, Receiver
from outbox_events.waiting import Observation, wait_for


class CrashError(BaseException):
    """Ends a receiver between the commit of the effects and the commit of the offsets."""


class CrashingReceiver(Receiver[Any]):
    """Crashes after each transaction, before it stores offsets."""

    def _done(self, events: Sequence[Event]) -> None:
        raise CrashError([event.place for event in events])


def crashing(service: Service, strategy: Any, **options: Any) -> CrashingReceiver:  # noqa: ANN401
    return CrashingReceiver(service.settings(), [service.topic], strategy, service.handlers, **options)


def crash(receiver: Receiver[Any]) -> None:
    """Poll until the receiver crashes."""
    try:
        for _ in range(SECONDS * 10):
            receiver.poll(0.1)
    except CrashError:
        return
    raise AssertionError(f"no crash: {receiver.counters.to_dict()}")


def create_again(admin: AdminClient, topic: str, partitions: int = 3) -> None:
    """Delete a topic and create another topic with the same name."""
    admin.delete_topics([topic])[topic].result(SECONDS)

    def deleted() -> Observation[bool]:
        is_listed = topic in admin.list_topics(timeout=SECONDS).topics
        return Observation(None if is_listed else True, "listed")

    wait_for(f"deletion of {topic}", deleted, seconds=SECONDS)
    provide_topic(admin, NewTopic(topic, partitions, 1))


def committed(receiver: Receiver[Any]) -> dict[int, int]:
    """Return the committed offsets of the group by partition, without partitions that have no committed offset."""
    consumer: Consumer = receiver.consumer
    return {
        place.partition: place.offset for place in consumer.committed(consumer.assignment(), 30) if place.offset >= 0
    }


def events(first: int, end: int) -> list[tuple[str, str]]:
    """Return events with the ids `first` to `end` - 1."""
    return [(f"k{number % 7}", str(number)) for number in range(first, end)]


def handled_ids(handled: list[Event]) -> list[int]:
    return sorted(int(event.event_id) for event in handled)
