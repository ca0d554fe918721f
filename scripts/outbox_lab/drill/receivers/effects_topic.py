"""Keep the effects of receivers with KafkaTransactions: one record per event, on a topic that is named as the group."""

from __future__ import annotations

from dataclasses import replace

from confluent_kafka import Message

from outbox_events import Event, KafkaTransaction, Record
from outbox_events.contract.headers import EVENT_ID
from outbox_events.kafka.record import text_headers
from outbox_events.kafka.topic_reader import read_records
from outbox_kit.kafka.client import KafkaClient, client_settings
from outbox_kit.pipeline import Kafka
from outbox_lab.drill.observer import Delivery, delivery_of
from outbox_lab.drill.project import PARTITIONS

POSITION = "position"


def create(kafka: Kafka, group: str) -> None:
    """Create the topic."""
    KafkaClient(kafka).create(group, partitions=PARTITIONS, replication_factor=kafka.replication_factor, config={})


def apply(transaction: KafkaTransaction, group: str, event: Event) -> None:
    """Send the effect of an event in the open transaction."""
    position = f"{event.partition}/{event.offset}"
    headers = ((EVENT_ID, event.event_id.encode()), (POSITION, position.encode()))
    transaction.send(Record(group, event.key, event.raw_value, headers))


def read_effects(kafka: Kafka, group: str) -> list[Delivery]:
    """Return the committed effects, in order within each partition, with the positions of the records they result from.

    Raises UnreachableError and WaitTimeoutError.
    """
    effects: list[Delivery] = []

    def note(message: Message) -> None:
        partition, offset = text_headers(message)[POSITION].split("/")
        effects.append(replace(delivery_of(message), partition=int(partition), offset=int(offset)))

    read_records(client_settings(kafka), {group: KafkaClient(kafka).bounds(group)}, note)
    return effects
