"""Create the strategies of outbox_events.receiving that the receivers of a cell use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from outbox_events import (
    BloomFilter,
    KafkaTransactions,
    ProcessedEvents,
    StoredOffsets,
    Strategy,
    WithoutDeduplication,
)
from outbox_lab.drill.receivers import tables

# The filter often begins a new generation, and the expected number of false positives in a cell is far below one.
FILTER_CAPACITY = 1000
FILTER_ERROR_RATE = 1e-9
# Shorter than END_S, so that the open transaction of a killed member does not delay the end of the cell.
TRANSACTION_TIMEOUT_MS = 10_000


@dataclass(frozen=True)
class Resources:
    """Resources that a strategy uses: broker, database of the service, consumer group, and number of the process."""

    kafka: str
    dsn: str
    group: str
    number: int

    def connect(self) -> tables.Connection:
        """Connect to the database of the service."""
        return tables.connect(self.dsn)


def _processed_events(resources: Resources) -> ProcessedEvents[tables.Connection]:
    return ProcessedEvents(resources.connect, resources.group, table=tables.PROCESSED_EVENTS)


def _stored_offsets(resources: Resources) -> Strategy[Any]:
    return StoredOffsets(resources.connect, resources.group, table=tables.POSITIONS)


def _bloom_filter(resources: Resources) -> Strategy[Any]:
    return BloomFilter(
        resources.connect,
        resources.group,
        table=tables.POSITIONS,
        filters=tables.FILTERS,
        capacity=FILTER_CAPACITY,
        error_rate=FILTER_ERROR_RATE,
    )


def _kafka_transactions(resources: Resources) -> Strategy[Any]:
    own = {
        "transactional.id": f"{resources.group}-{resources.number}",
        "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
    }
    return KafkaTransactions({"bootstrap.servers": resources.kafka, **own})


def _without_deduplication(resources: Resources) -> Strategy[Any]:
    return WithoutDeduplication(resources.connect)


STRATEGIES: dict[str, Callable[[Resources], Strategy[Any]]] = {
    "processed-events": _processed_events,
    "stored-offsets": _stored_offsets,
    "bloom-filter": _bloom_filter,
    "kafka-transactions": _kafka_transactions,
    "without-deduplication": _without_deduplication,
}
STORES_POSITIONS = frozenset({"stored-offsets", "bloom-filter"})
"""Strategies that store positions in the database. The committed offsets of the group can be lower than these."""
ONCE_PER_EVENT = frozenset({"processed-events", "bloom-filter"})
"""Strategies that apply each event once, even if the topic contains the event twice."""
ONCE_PER_RECORD = frozenset({"stored-offsets", "kafka-transactions"})
"""Strategies that apply each record once, so that an event that is on the topic twice is applied twice."""
SENDS_EFFECTS = frozenset({"kafka-transactions"})
"""Strategies whose effects are records of a topic."""
