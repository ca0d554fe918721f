"""Second reader of a cell's topic: a fresh consumer, which reads what the observer may have missed.

After a restart of the broker, a long-lived consumer can remain without records. This is no loss of the way.
"""

from __future__ import annotations

from collections.abc import Sequence

from outbox_events.kafka.topic_reader import read_records
from outbox_events.text import plural
from outbox_events.waiting import Observation, wait_for
from outbox_kit.kafka.client import KafkaClient, client_settings
from outbox_kit.pipeline import Kafka
from outbox_lab.drill.observer import Delivery, Observer, delivery_of

QUIET_S = 5
END_S = 120


def read_deliveries(kafka: Kafka, topic: str) -> list[Delivery]:
    """Return the committed records of a topic from its beginning to its current end, without a time of reception.

    Raises UnreachableError and WaitTimeoutError.
    """
    deliveries: list[Delivery] = []
    ranges = {topic: KafkaClient(kafka).bounds(topic)}
    read_records(client_settings(kafka), ranges, lambda message: deliveries.append(delivery_of(message)))
    return deliveries


def complete(observer: Observer, kafka: Kafka, topic: str) -> tuple[list[Delivery], str]:
    """Return the records that the observer or a second reader saw, and a note if the observer missed some.

    Raises UnreachableError, and WaitTimeoutError after END_S.
    """
    read = _read_until_end(observer, kafka, topic)
    observed = observer.deliveries
    count = len(missed(observed, read))
    note = f"the observer missed {plural(count, 'record')}, which a second reader read" if count else ""
    return merge(observed, read), note


def _read_until_end(observer: Observer, kafka: Kafka, topic: str) -> list[Delivery]:
    """Read the topic until the observer has all its records, or until no record follows for QUIET_S."""
    count = -1

    def poll() -> Observation[list[Delivery]]:
        nonlocal count
        read, before = read_deliveries(kafka, topic), count
        count = len(read)
        is_end = count == before or not missed(observer.deliveries, read)
        return Observation(read if is_end else None, f"{before} records, then {count}")

    return wait_for(f"the last record of topic {topic}", poll, seconds=END_S, interval=QUIET_S)


def missed(observed: Sequence[Delivery], read: Sequence[Delivery]) -> list[Delivery]:
    """Return the records that were read, but not observed."""
    positions = {delivery.position for delivery in observed}
    return [delivery for delivery in read if delivery.position not in positions]


def merge(observed: Sequence[Delivery], read: Sequence[Delivery]) -> list[Delivery]:
    """Return each record once, as it was observed if it was, with the records of each partition in their order."""
    deliveries: dict[tuple[int, int], Delivery] = {}
    for delivery in (*observed, *read):
        deliveries.setdefault(delivery.position, delivery)
    if missed(observed, read):
        return [deliveries[position] for position in sorted(deliveries)]
    return list(deliveries.values())
