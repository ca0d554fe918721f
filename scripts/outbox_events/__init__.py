"""Write events in a service's own transaction, and apply each received event once (see README.md).

This module exports all public names and imports each of them on first use, so writing events requires only psycopg.
Other features need an extra: `kafka` to receive or produce, `avro` for AvroValues, `otel` for OpenTelemetryTracer.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from outbox_events.extras import extra

if TYPE_CHECKING:
    from outbox_events.contract.partitioner import partition_of
    from outbox_events.errors import (
        ConfigurationError,
        OutboxError,
        RefusedError,
        RejectedError,
        UnreachableError,
        WaitTimeoutError,
    )
    from outbox_events.kafka.record import PRODUCER_SETTINGS, Record
    from outbox_events.latest_state.cache import LatestState, StaleStateError, StateStatus
    from outbox_events.limited_calls import ClientStuckError
    from outbox_events.producing import delivery_proof, recovery_store, two_phase
    from outbox_events.producing.chained import ChainedSender
    from outbox_events.producing.database import Order
    from outbox_events.producing.deliveries import Deliveries, KafkaTransaction, fence
    from outbox_events.producing.delivery_listener import DeliveryListener, ListenerCounters
    from outbox_events.producing.delivery_proof import DeliveryProof
    from outbox_events.producing.errors import (
        NotCommittedError,
        NotDeliveredError,
        ProducerUnusableError,
        UnknownOutcomeError,
    )
    from outbox_events.producing.proof_sender import ProofSender
    from outbox_events.producing.recovery_store import RecoveryStore, recover
    from outbox_events.producing.sender_transaction import SenderTransaction
    from outbox_events.producing.stored_record import Recovered
    from outbox_events.producing.supervised_sender import SupervisedSender
    from outbox_events.producing.two_phase import Resolved, TwoPhaseSender
    from outbox_events.producing.unfinished import UnfinishedSender, recover_sender, unfinished_senders
    from outbox_events.receiving import recoverers
    from outbox_events.receiving.avro_values import AvroValues
    from outbox_events.receiving.event import (
        Event,
        InvalidRecordError,
        header_id,
        json_value,
        payload_id,
        position_id,
        raw,
    )
    from outbox_events.receiving.handlers import Handlers
    from outbox_events.receiving.receiver import Counters, Receiver
    from outbox_events.receiving.recoverers import DeadLetterTopic, Failure, ReceiverStoppedError
    from outbox_events.receiving.retries import Reaction, Retries, default_reaction
    from outbox_events.receiving.status import ReceiverStatus
    from outbox_events.receiving.strategies import position_table, processed_retention, processed_table
    from outbox_events.receiving.strategies.bloom import filter_table
    from outbox_events.receiving.strategies.bloom.bloom_filter import BloomFilter
    from outbox_events.receiving.strategies.kafka_transactions import KafkaTransactions
    from outbox_events.receiving.strategies.processed_events import ProcessedEvents
    from outbox_events.receiving.strategies.processed_table import claim, claim_async
    from outbox_events.receiving.strategies.stored_offsets import StoredOffsets
    from outbox_events.receiving.strategies.without_deduplication import WithoutDeduplication
    from outbox_events.receiving.strategy import Strategy, Work
    from outbox_events.sending.composite_id import composite_id
    from outbox_events.sending.emit import emit, emit_async, emit_many
    from outbox_events.sending.event import InvalidEventError, OutboxEvent
    from outbox_events.sending.outbox_table import OutboxTable
    from outbox_events.tracing.opentelemetry_tracer import OpenTelemetryTracer
    from outbox_events.tracing.tracer import Tracer, trace_headers, traced, use_tracer
    from outbox_events.waiting import Observation, wait_for

__version__ = "0.1.0"

_MODULES = {
    "contract.partitioner": "partition_of",
    "errors": "ConfigurationError OutboxError RefusedError RejectedError UnreachableError WaitTimeoutError",
    "limited_calls": "ClientStuckError",
    "kafka.record": "PRODUCER_SETTINGS Record",
    "latest_state.cache": "LatestState StaleStateError StateStatus",
    "producing": "delivery_proof recovery_store two_phase",
    "producing.chained": "ChainedSender",
    "producing.database": "Order",
    "producing.deliveries": "Deliveries KafkaTransaction fence",
    "producing.delivery_listener": "DeliveryListener ListenerCounters",
    "producing.delivery_proof": "DeliveryProof",
    "producing.errors": "NotCommittedError NotDeliveredError ProducerUnusableError UnknownOutcomeError",
    "producing.proof_sender": "ProofSender",
    "producing.recovery_store": "RecoveryStore recover",
    "producing.sender_transaction": "SenderTransaction",
    "producing.stored_record": "Recovered",
    "producing.supervised_sender": "SupervisedSender",
    "producing.two_phase": "Resolved TwoPhaseSender",
    "producing.unfinished": "UnfinishedSender recover_sender unfinished_senders",
    "receiving": "recoverers",
    "receiving.event": "Event InvalidRecordError header_id json_value payload_id position_id raw",
    "receiving.handlers": "Handlers",
    "receiving.receiver": "Counters Receiver",
    "receiving.recoverers": "DeadLetterTopic Failure ReceiverStoppedError",
    "receiving.retries": "Reaction Retries default_reaction",
    "receiving.status": "ReceiverStatus",
    "receiving.strategies": "position_table processed_retention processed_table",
    "receiving.strategies.bloom": "filter_table",
    "receiving.strategies.bloom.bloom_filter": "BloomFilter",
    "receiving.strategies.kafka_transactions": "KafkaTransactions",
    "receiving.strategies.processed_events": "ProcessedEvents",
    "receiving.strategies.processed_table": "claim claim_async",
    "receiving.strategies.stored_offsets": "StoredOffsets",
    "receiving.strategies.without_deduplication": "WithoutDeduplication",
    "receiving.strategy": "Strategy Work",
    "receiving.avro_values": "AvroValues",
    "sending.event": "InvalidEventError OutboxEvent",
    "sending.composite_id": "composite_id",
    "sending.emit": "emit emit_async emit_many",
    "sending.outbox_table": "OutboxTable",
    "tracing.opentelemetry_tracer": "OpenTelemetryTracer",
    "tracing.tracer": "Tracer trace_headers traced use_tracer",
    "waiting": "Observation wait_for",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = [
    "PRODUCER_SETTINGS",
    "AvroValues",
    "BloomFilter",
    "ChainedSender",
    "ClientStuckError",
    "ConfigurationError",
    "Counters",
    "DeadLetterTopic",
    "Deliveries",
    "DeliveryListener",
    "DeliveryProof",
    "Event",
    "Failure",
    "Handlers",
    "InvalidEventError",
    "InvalidRecordError",
    "KafkaTransaction",
    "KafkaTransactions",
    "LatestState",
    "ListenerCounters",
    "NotCommittedError",
    "NotDeliveredError",
    "Observation",
    "OpenTelemetryTracer",
    "Order",
    "OutboxError",
    "OutboxEvent",
    "OutboxTable",
    "ProcessedEvents",
    "ProducerUnusableError",
    "ProofSender",
    "Reaction",
    "Receiver",
    "ReceiverStatus",
    "ReceiverStoppedError",
    "Record",
    "Recovered",
    "RecoveryStore",
    "RefusedError",
    "RejectedError",
    "Resolved",
    "Retries",
    "SenderTransaction",
    "StaleStateError",
    "StateStatus",
    "StoredOffsets",
    "Strategy",
    "SupervisedSender",
    "Tracer",
    "TwoPhaseSender",
    "UnfinishedSender",
    "UnknownOutcomeError",
    "UnreachableError",
    "WaitTimeoutError",
    "WithoutDeduplication",
    "Work",
    "claim",
    "claim_async",
    "composite_id",
    "default_reaction",
    "delivery_proof",
    "emit",
    "emit_async",
    "emit_many",
    "fence",
    "filter_table",
    "header_id",
    "json_value",
    "partition_of",
    "payload_id",
    "position_id",
    "position_table",
    "processed_retention",
    "processed_table",
    "raw",
    "recover",
    "recover_sender",
    "recoverers",
    "recovery_store",
    "trace_headers",
    "traced",
    "two_phase",
    "unfinished_senders",
    "use_tracer",
    "wait_for",
]


def __getattr__(name: str) -> object:
    """Import a public name from its module. Raises MissingExtraError if the name requires an extra that is missing."""
    if name not in _HOMES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    home = f"{__name__}.{_HOMES[name]}"
    with extra():
        module = import_module(home)
        value = getattr(module, name) if hasattr(module, name) else import_module(f"{home}.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
