"""Deletion of states in partitions to which the connector does not send the records of a key.

The connector cannot delete them, because it sends every record of a key to the partition of the key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import uuid4

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from outbox_events.contract import headers
from outbox_events.text import plural, shortened_list
from outbox_events.waiting import Deadline
from outbox_kit.backfill.republish import EVENT_TYPE
from outbox_kit.connect import state as connect_state
from outbox_kit.deployment import Deployment
from outbox_kit.deployment.preconditions import refuse_wrong_cluster
from outbox_kit.errors import RefusedError, RejectedError, UnreachableError
from outbox_kit.kafka.client import client_settings
from outbox_kit.kafka.latest_records import LatestRecords
from outbox_kit.operations.preconditions import MAX_LISTED_KEYS, DeletionLimit
from outbox_kit.operations.state_comparison import StuckAggregate
from outbox_kit.pipeline import Kafka

Headers = list[tuple[str, str | bytes | None]]
DeliveryCallback = Callable[[KafkaError | None, Message], None]
FLUSH_TIMEOUT_S = 60
QUEUE_POLL_S = 1.0
PERMISSION_HINT = "allow the login of kafka.client to write to the topic, and run the command again"
UNSENT_HINT = "check the brokers and kafka.client, and run the command again"
# Tables that are ordered by source_sequence accept only records with it. The lowest one deletes no row.
LOWEST_SEQUENCE = f"{0:04x}_{0:016x}-{0:016x}"


@dataclass(frozen=True)
class MisplacedStates:
    """States of one aggregate type in wrong partitions, by key and partition."""

    aggregate_type: str
    topic: str
    places: tuple[tuple[str, int], ...]

    @property
    def text(self) -> str:
        keys = shortened_list(sorted({key for key, _ in self.places}), MAX_LISTED_KEYS)
        count = plural(len(self.places), "tombstone")
        return f"{count} for states in wrong partitions of topic {self.topic}; keys: {keys}"


def misplaced_states(deployment: Deployment, aggregates: Iterable[StuckAggregate]) -> dict[str, MisplacedStates]:
    """Return the states of the stuck aggregates in wrong partitions, by aggregate type."""
    places: dict[str, list[tuple[str, int]]] = {}
    for entry in aggregates:
        places.setdefault(entry.aggregate_type, []).extend((entry.key, number) for number in entry.partitions)
    topic_of = deployment.pipeline.topic_of
    return {name: MisplacedStates(name, topic_of(name), tuple(found)) for name, found in places.items() if found}


def refuse_unsafe(deployment: Deployment, found: Iterable[MisplacedStates], limit: DeletionLimit) -> None:
    """Raise RefusedError unless the tombstones are within the limit, and the connector can write the next states."""
    for states in found:
        refuse_wrong_cluster(deployment, deployment.lock(), ("kafka",))
        _require_running(deployment)
        records = LatestRecords(deployment.kafka, states.topic)
        records.read()
        declared_count = deployment.pipeline.aggregates[states.aggregate_type].partitions
        if records.partition_count != declared_count:
            raise RefusedError(
                f"topic {states.topic} has {records.partition_count} partitions, but the pipeline file has "
                f"{declared_count}: the right partitions are unknown",
                "see docs/operations.md, Adding partitions",
            )
        topic_count = len(records.keys_with_state())
        percent = 100 * len(states.places) / topic_count if topic_count else 100.0
        if not limit.allows_count(len(states.places), percent):
            raise RefusedError(
                f"nothing was written, because --max-deletions does not allow {states.text} ({percent:.1f} % of the "
                "states)",
                f"check the partitioner of the connector, then add --max-deletions {len(states.places)}",
            )


def _require_running(deployment: Deployment) -> None:
    """Raise RefusedError unless the connector runs: without it, readers would see only the tombstones."""
    name = deployment.pipeline.connector.name
    status = deployment.connect.status(name)
    if status is None or {status.connector_state, *status.task_states} != {"RUNNING"}:
        actual = status.text if status else f"connector {name} does not exist"
        raise RefusedError(f"{actual}: the latest states would not follow the tombstones", "run `outbox status`")


def write_tombstones(deployment: Deployment, states: MisplacedStates) -> None:
    """Write a tombstone for each state, and wait for the broker. Raises UnreachableError, RejectedError."""
    has_sequences = connect_state.epoch(deployment.connect.config(deployment.pipeline.connector.name)) > 0
    _produce(
        deployment.environment.kafka,
        states.topic,
        [
            (key, partition, _headers(states.aggregate_type) if has_sequences else [])
            for key, partition in states.places
        ],
    )


def _headers(aggregate_type: str) -> Headers:
    """Return the headers that docs/contract.md describes."""
    return [
        (headers.EVENT_ID, str(uuid4())),
        (headers.EVENT_TYPE, EVENT_TYPE),
        (headers.AGGREGATE_TYPE, aggregate_type),
        (headers.EVENT_TIME, datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")),
        (headers.SOURCE_SEQUENCE, LOWEST_SEQUENCE),
    ]


def _produce(kafka: Kafka, topic: str, tombstones: Iterable[tuple[str, int, Headers]]) -> None:
    errors: list[str] = []

    def collect(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            errors.append(error.str())

    try:
        producer = Producer({**client_settings(kafka), "enable.idempotence": True})
        for key, partition, headers in tombstones:
            _enqueue(producer, topic, key, partition, headers, collect)
        unsent_count = producer.flush(FLUSH_TIMEOUT_S)
    except KafkaException as error:
        raise RejectedError(f"topic {topic}: {error.args[0].str()}", PERMISSION_HINT) from None
    if errors:
        raise RejectedError(f"topic {topic}: {len(errors)} tombstones were rejected: {errors[0]}", PERMISSION_HINT)
    if unsent_count:
        message = f"topic {topic}: {unsent_count} tombstones were not written within {FLUSH_TIMEOUT_S} s"
        raise UnreachableError(message, UNSENT_HINT)


def _enqueue(
    producer: Producer, topic: str, key: str, partition: int, headers: Headers, collect: DeliveryCallback
) -> None:
    deadline = Deadline(FLUSH_TIMEOUT_S)
    while True:
        try:
            producer.produce(topic, key=key.encode(), partition=partition, headers=headers, on_delivery=collect)
            return
        except BufferError:  # the queue is full
            if not deadline.seconds_left:
                message = f"topic {topic}: the producer's queue was full for {FLUSH_TIMEOUT_S} s"
                raise UnreachableError(message, UNSENT_HINT) from None
            producer.poll(QUEUE_POLL_S)
