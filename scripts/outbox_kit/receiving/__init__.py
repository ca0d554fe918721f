"""Library for services that receive events and apply each of them once.

    handlers = Handlers[psycopg.Connection]()

    @handlers.on("BookLent")
    def count_loan(event: Event, connection: psycopg.Connection) -> None:
        connection.execute("update book set loans = loans + 1 where id = %s", [event.aggregate_id])

    once = ProcessedEvents(lambda: psycopg.connect(dsn), group="statistics")
    with Receiver({"bootstrap.servers": ..., "group.id": "statistics"}, ["library.book"], once, handlers) as receiver:
        receiver.run(stop)

See docs/receiving.md for the strategies, what they promise, and what they cost.
"""

from outbox_kit.receiving import recoverers
from outbox_kit.receiving.counters import Counters
from outbox_kit.receiving.event import Event, InvalidRecordError, header_id, payload_id, position_id
from outbox_kit.receiving.handlers import Handlers
from outbox_kit.receiving.receiver import Receiver
from outbox_kit.receiving.recoverers import DeadLetterTopic, Failure, ReceiverStoppedError
from outbox_kit.receiving.retries import Reaction, Retries, default_reaction
from outbox_kit.receiving.strategies import position_table, processed_table
from outbox_kit.receiving.strategies.bloom_filter import BloomFilter
from outbox_kit.receiving.strategies.kafka_transactions import KafkaTransactions
from outbox_kit.receiving.strategies.processed_events import ProcessedEvents
from outbox_kit.receiving.strategies.processed_table import claim, claim_async
from outbox_kit.receiving.strategies.stored_offsets import StoredOffsets
from outbox_kit.receiving.strategies.without_deduplication import WithoutDeduplication
from outbox_kit.receiving.strategy import Strategy, Work

__all__ = [
    "BloomFilter",
    "Counters",
    "DeadLetterTopic",
    "Event",
    "Failure",
    "Handlers",
    "InvalidRecordError",
    "KafkaTransactions",
    "ProcessedEvents",
    "Reaction",
    "Receiver",
    "ReceiverStoppedError",
    "Retries",
    "StoredOffsets",
    "Strategy",
    "WithoutDeduplication",
    "Work",
    "claim",
    "claim_async",
    "default_reaction",
    "header_id",
    "payload_id",
    "position_id",
    "position_table",
    "processed_table",
    "recoverers",
]
