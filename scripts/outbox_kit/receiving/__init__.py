"""Library for services that receive events and apply each of them once.

    handlers = Handlers[psycopg.Connection]()

    @handlers.on("BookLent")
    def count_loan(event: Event, connection: psycopg.Connection) -> None:
        connection.execute("update book set loans = loans + 1 where id = %s", [event.aggregate_id])

    once = ProcessedEvents(lambda: psycopg.connect(dsn))
    with Receiver({"bootstrap.servers": ..., "group.id": "statistics"}, ["library.book"], once, handlers) as receiver:
        receiver.run(stop)

See docs/receiving.md for the strategies, what they promise, and what they cost.
"""

from outbox_common.extras import extra

with extra("kafka"):
    from outbox_kit.receiving import recoverers
    from outbox_kit.receiving.counters import Counters
    from outbox_kit.receiving.event import Event, InvalidRecordError, header_id, payload_id, position_id
    from outbox_kit.receiving.handlers import Handlers
    from outbox_kit.receiving.latest_state import LatestState, StaleStateError, StateStatus
    from outbox_kit.receiving.receiver import Receiver
    from outbox_kit.receiving.recoverers import DeadLetterTopic, Failure, ReceiverStoppedError
    from outbox_kit.receiving.retries import Reaction, Retries, default_reaction
    from outbox_kit.receiving.strategies import position_table, processed_retention, processed_table
    from outbox_kit.receiving.strategies.bloom.bloom_filter import BloomFilter
    from outbox_kit.receiving.strategies.kafka_transactions import KafkaTransactions
    from outbox_kit.receiving.strategies.processed_events import ProcessedEvents
    from outbox_kit.receiving.strategies.processed_table import claim, claim_async
    from outbox_kit.receiving.strategies.stored_offsets import StoredOffsets
    from outbox_kit.receiving.strategies.without_deduplication import WithoutDeduplication
    from outbox_kit.receiving.strategy import Strategy, Work
    from outbox_kit.receiving.values import AvroValues, json_value, raw

__all__ = [
    "AvroValues",
    "BloomFilter",
    "Counters",
    "DeadLetterTopic",
    "Event",
    "Failure",
    "Handlers",
    "InvalidRecordError",
    "KafkaTransactions",
    "LatestState",
    "ProcessedEvents",
    "Reaction",
    "Receiver",
    "ReceiverStoppedError",
    "Retries",
    "StaleStateError",
    "StateStatus",
    "StoredOffsets",
    "Strategy",
    "WithoutDeduplication",
    "Work",
    "claim",
    "claim_async",
    "default_reaction",
    "header_id",
    "json_value",
    "payload_id",
    "position_id",
    "position_table",
    "processed_retention",
    "processed_table",
    "raw",
    "recoverers",
]
