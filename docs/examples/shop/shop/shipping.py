"""Idempotent consumer: ships every order once, even if its event is delivered again."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import psycopg
from confluent_kafka import Consumer, KafkaException, Message
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from outbox_kit.sending import emit

TOPIC = "shop.order"
ITEMS_PER_PARCEL = 2


class Shipping:
    """Consumer of shop.order that writes shipments and their events."""

    def __init__(self, dsn: str, bootstrap_servers: str, registry_url: str, group: str = "shipping") -> None:
        self.dsn = dsn
        self.registry = SchemaRegistryClient({"url": registry_url})
        self.decode = AvroDeserializer(self.registry)
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                # Offsets are committed after the database; until then, records are delivered again after a restart.
                "enable.auto.commit": False,
                # Skip records of aborted transactions, which a connector with exactly-once support can write.
                "isolation.level": "read_committed",
            }
        )
        self.consumer.subscribe([TOPIC])

    def poll(self, seconds: float = 1.0) -> int:
        """Process at most one record; return the number of processed records."""
        message = self.consumer.poll(seconds)
        if message is None:
            return 0
        if message.error():
            raise KafkaException(message.error())
        with psycopg.connect(self.dsn) as connection:
            self.handle(connection, message)
        self.commit(message)
        return 1

    def commit(self, message: Message) -> None:
        """Commit the offset to Kafka after the database commit."""
        self.consumer.commit(message=message, asynchronous=False)

    def handle(self, connection: psycopg.Connection[Any], message: Message) -> bool:
        """Process one record in the open transaction; return False for a record that was processed before.

        The insert into processed_events is first. A concurrent second delivery waits at its insert until this
        transaction ends. After a commit it is a duplicate; after a rollback it is processed.
        """
        headers = dict(message.headers() or [])
        event_id = UUID(headers["event_id"].decode())
        inserted = connection.execute(
            "insert into processed_events (event_id) values (%s) on conflict do nothing", [event_id]
        )
        if not inserted.rowcount:
            return False
        value = message.value()
        if value is not None:  # nothing is shipped for a tombstone, which means that the order was deleted
            self.ship(connection, self.decode(value, SerializationContext(TOPIC, MessageField.VALUE)))
        return True

    def ship(self, connection: psycopg.Connection[Any], order: dict[str, Any]) -> None:
        """Insert the shipment and its event in the same transaction."""
        shipment = {"id": uuid4(), "order_id": order["id"], "parcels": -(-len(order["items"]) // ITEMS_PER_PARCEL)}
        connection.execute("insert into shipments values (%(id)s, %(order_id)s, %(parcels)s)", shipment)
        emit(
            connection,
            aggregate_type="shipment",
            aggregate_id=shipment["id"],
            event_type="shipment_prepared",
            payload=shipment,
        )

    def close(self) -> None:
        """Leave the consumer group."""
        self.consumer.close()
        self.registry.close()
