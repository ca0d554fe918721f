"""Delete states from partitions to which the connector does not send records of their keys.

The connector cannot delete these states, because it sends every record of a key to the key's partition.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import uuid4

from outbox_events.contract import headers
from outbox_events.errors import RefusedError, UnreachableError
from outbox_events.kafka.record import Record
from outbox_events.text import plural, shortened_list
from outbox_kit.backfill.republish import EVENT_TYPE
from outbox_kit.connect import state as connect_state
from outbox_kit.deployment import Deployment
from outbox_kit.kafka.client import send_records
from outbox_kit.kafka.latest_records import LatestRecords
from outbox_kit.operations.preconditions import MAX_LISTED_KEYS, DeletionLimit
from outbox_kit.operations.state_comparison import StuckAggregate

WRITE_HINT = (
    "check the brokers, and that the login of kafka.client is allowed to write to the topic; then run the command again"
)
# Tables ordered by source_sequence require this header. A tombstone with the lowest value does not delete any row.
LOWEST_SEQUENCE = f"{0:04x}_{0:016x}-{0:016x}"


@dataclass(frozen=True)
class MisplacedStates:
    """States of one aggregate type that are in wrong partitions. Each of `places` is a key and a partition."""

    aggregate_type: str
    topic: str
    places: tuple[tuple[str, int], ...]

    @property
    def text(self) -> str:
        keys = shortened_list(sorted({key for key, _ in self.places}), MAX_LISTED_KEYS)
        count = plural(len(self.places), "tombstone")
        return f"{count} for states in wrong partitions of topic {self.topic}; keys: {keys}"


def misplaced_states(deployment: Deployment, aggregates: Iterable[StuckAggregate]) -> dict[str, MisplacedStates]:
    """Return a mapping from each aggregate type to the states of its stuck aggregates that are in wrong partitions."""
    places: dict[str, list[tuple[str, int]]] = {}
    for entry in aggregates:
        places.setdefault(entry.aggregate_type, []).extend((entry.key, number) for number in entry.partitions)
    topic_of = deployment.pipeline.topic_of
    return {name: MisplacedStates(name, topic_of(name), tuple(found)) for name, found in places.items() if found}


def refuse_unsafe(deployment: Deployment, found: Iterable[MisplacedStates], limit: DeletionLimit) -> None:
    """Raise RefusedError unless the tombstones are within the limit, and the connector can write the next states."""
    for states in found:
        _require_running(deployment)
        records = LatestRecords(deployment.kafka, states.topic)
        records.read()
        declared_count = deployment.pipeline.aggregates[states.aggregate_type].partitions
        if records.partition_count != declared_count:
            raise RefusedError(
                f"topic {states.topic} has {records.partition_count} partitions, but the pipeline file has "
                f"{declared_count}: the right partitions are unknown",
                "see docs/planned-changes.md, Adding partitions",
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
    """Raise RefusedError unless the connector runs, because readers would otherwise see only the tombstones."""
    name = deployment.pipeline.connector.name
    status = deployment.connect.status(name)
    if status is None or {status.connector_state, *status.task_states} != {"RUNNING"}:
        actual = status.text if status else f"connector {name} does not exist"
        raise RefusedError(f"{actual}: the latest states would not follow the tombstones", "run `outbox status`")


def write_tombstones(deployment: Deployment, states: MisplacedStates) -> None:
    """Write a tombstone for each state, and wait until the broker has acknowledged them. Raises UnreachableError."""
    has_sequences = connect_state.epoch(deployment.connect.config(deployment.pipeline.connector.name)) > 0
    records = [
        Record(states.topic, key.encode(), None, _headers(states.aggregate_type) if has_sequences else (), partition)
        for key, partition in states.places
    ]
    try:
        send_records(deployment.environment.kafka, records)
    except UnreachableError as error:
        raise UnreachableError(f"topic {states.topic}: {error.message}", WRITE_HINT) from error


def _headers(aggregate_type: str) -> tuple[tuple[str, bytes], ...]:
    """Return the headers that docs/contract.md describes."""
    texts = {
        headers.EVENT_ID: str(uuid4()),
        headers.EVENT_TYPE: EVENT_TYPE,
        headers.AGGREGATE_TYPE: aggregate_type,
        headers.EVENT_TIME: datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
        headers.SOURCE_SEQUENCE: LOWEST_SEQUENCE,
    }
    return tuple((name, text.encode()) for name, text in texts.items())
