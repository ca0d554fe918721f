"""Write events in a service's own transaction, and apply each received event once (see README.md).

This module exports all public names and imports each of them on first use, so writing events requires only psycopg.
Other features need an extra: `kafka` to receive or produce, `avro` for AvroValues, `otel` for OpenTelemetryTracer.
"""

from typing import TYPE_CHECKING

from outbox_events.extras import imported_on_first_use

if TYPE_CHECKING:
    from outbox_events.contract.partitioner import partition_of as partition_of
    from outbox_events.errors import (
        ConfigurationError as ConfigurationError,
        OutboxError as OutboxError,
        RefusedError as RefusedError,
        RejectedError as RejectedError,
        UnreachableError as UnreachableError,
        WaitTimeoutError as WaitTimeoutError,
    )
    from outbox_events.kafka.record import PRODUCER_SETTINGS as PRODUCER_SETTINGS, Record as Record
    from outbox_events.latest_state.cache import (
        LatestState as LatestState,
        StaleStateError as StaleStateError,
        StateStatus as StateStatus,
    )
    from outbox_events.limited_calls import ClientStuckError as ClientStuckError
    from outbox_events.producing import (
        delivery_proof as delivery_proof,
        recovery_store as recovery_store,
        two_phase as two_phase,
    )
    from outbox_events.producing.chained import ChainedSender as ChainedSender
    from outbox_events.producing.database import Order as Order
    from outbox_events.producing.deliveries import (
        Deliveries as Deliveries,
        KafkaTransaction as KafkaTransaction,
        fence as fence,
    )
    from outbox_events.producing.delivery_listener import (
        DeliveryListener as DeliveryListener,
        ListenerCounters as ListenerCounters,
    )
    from outbox_events.producing.delivery_proof import DeliveryProof as DeliveryProof
    from outbox_events.producing.errors import (
        NotCommittedError as NotCommittedError,
        NotDeliveredError as NotDeliveredError,
        ProducerUnusableError as ProducerUnusableError,
        UnknownOutcomeError as UnknownOutcomeError,
    )
    from outbox_events.producing.proof_sender import ProofSender as ProofSender
    from outbox_events.producing.recovery_store import RecoveryStore as RecoveryStore, recover as recover
    from outbox_events.producing.sender_transaction import SenderTransaction as SenderTransaction
    from outbox_events.producing.stored_record import Recovered as Recovered
    from outbox_events.producing.supervised_sender import SupervisedSender as SupervisedSender
    from outbox_events.producing.two_phase import Resolved as Resolved, TwoPhaseSender as TwoPhaseSender
    from outbox_events.producing.unfinished import (
        UnfinishedSender as UnfinishedSender,
        recover_sender as recover_sender,
        unfinished_senders as unfinished_senders,
    )
    from outbox_events.receiving import recoverers as recoverers
    from outbox_events.receiving.avro_values import AvroValues as AvroValues
    from outbox_events.receiving.event import (
        Event as Event,
        InvalidRecordError as InvalidRecordError,
        header_id as header_id,
        json_value as json_value,
        payload_id as payload_id,
        position_id as position_id,
        raw as raw,
    )
    from outbox_events.receiving.handlers import Handlers as Handlers
    from outbox_events.receiving.key_order import in_order_by_key as in_order_by_key
    from outbox_events.receiving.receiver import Counters as Counters, Receiver as Receiver
    from outbox_events.receiving.recoverers import (
        DeadLetterTopic as DeadLetterTopic,
        Failure as Failure,
        ReceiverStoppedError as ReceiverStoppedError,
    )
    from outbox_events.receiving.retries import (
        Reaction as Reaction,
        Retries as Retries,
        default_reaction as default_reaction,
    )
    from outbox_events.receiving.status import ReceiverStatus as ReceiverStatus
    from outbox_events.receiving.strategies import (
        position_table as position_table,
        processed_retention as processed_retention,
        processed_table as processed_table,
    )
    from outbox_events.receiving.strategies.bloom import filter_table as filter_table
    from outbox_events.receiving.strategies.bloom.bloom_filter import BloomFilter as BloomFilter
    from outbox_events.receiving.strategies.kafka_transactions import KafkaTransactions as KafkaTransactions
    from outbox_events.receiving.strategies.processed_events import ProcessedEvents as ProcessedEvents
    from outbox_events.receiving.strategies.processed_table import claim as claim, claim_async as claim_async
    from outbox_events.receiving.strategies.stored_offsets import StoredOffsets as StoredOffsets
    from outbox_events.receiving.strategies.without_deduplication import WithoutDeduplication as WithoutDeduplication
    from outbox_events.receiving.strategy import Strategy as Strategy, Work as Work
    from outbox_events.sending.composite_id import composite_id as composite_id
    from outbox_events.sending.emit import emit as emit, emit_async as emit_async, emit_many as emit_many
    from outbox_events.sending.event import InvalidEventError as InvalidEventError, OutboxEvent as OutboxEvent
    from outbox_events.sending.outbox_table import OutboxTable as OutboxTable
    from outbox_events.tracing.opentelemetry_tracer import OpenTelemetryTracer as OpenTelemetryTracer
    from outbox_events.tracing.tracer import (
        Tracer as Tracer,
        trace_headers as trace_headers,
        traced as traced,
        use_tracer as use_tracer,
    )
    from outbox_events.waiting import Observation as Observation, wait_for as wait_for

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
    "receiving.key_order": "in_order_by_key",
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

__all__ = list(_HOMES)
__getattr__ = imported_on_first_use(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
