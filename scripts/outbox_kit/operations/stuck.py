"""Stuck aggregates: aggregates whose latest committed state is not confirmed to be on their topic.

The latest outbox row of an aggregate is confirmed by any of these:
- the latest record of its key has the event id of that row, of a row with the same created_at (all rows of a
  transaction have the same created_at), or of the row that was inserted last (the clock may have been set back);
- that record's event_time is not before the row's created_at;
- the row is a tombstone, and the topic has no record of the key: compaction removes tombstones.

created_at is the start of the transaction, so the aggregate of a long transaction can be listed between the commit and
the arrival of its record. Rows that were deleted from the outbox table cannot be compared. If the aggregate has a
`backfill`, its business table is compared too: an aggregate without a record is `missing`, a record with a state but
without an aggregate is a `ghost`.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from confluent_kafka import Message

from outbox_kit import backfill
from outbox_kit.deployment import Deployment
from outbox_kit.errors import RefusedError, WaitTimeoutError
from outbox_kit.kafka.topic_reader import read_records, text_headers
from outbox_kit.pipeline import Backfill
from outbox_kit.postgres import aggregate_queries
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres.client import Connection, Row
from outbox_kit.progress import Reporter
from outbox_kit.waiting import Observation, wait_for

READ_TIMEOUT_S = 3600
POLL_INTERVAL_S = 1.0

Kind = Literal["missing", "stale", "ghost"]


@dataclass(frozen=True)
class StuckAggregate:
    """One stuck aggregate. `since` is created_at of its latest outbox row, or event_time of a ghost's record."""

    aggregate_type: str
    key: str
    kind: Kind
    event_id: str = ""
    since: str = ""

    @property
    def problem(self) -> str:
        return {
            "missing": "no record on the topic",
            "stale": "the record on the topic is older than the outbox row",
            "ghost": "a record on the topic, but no aggregate in the database",
        }[self.kind]


@dataclass(frozen=True)
class LatestRecord:
    """Latest record of a key; `has_state` is False for a tombstone."""

    sequence: str
    event_id: str
    event_time: str
    has_state: bool


class LatestRecords:
    """Latest record of each key of a topic. The first read() reads the entire topic, later calls only new records."""

    def __init__(self, deployment: Deployment, topic: str) -> None:
        self._kafka = deployment.kafka
        self._topic = topic
        self._next_offsets: dict[int, int] = {}
        self.by_key: dict[str, LatestRecord] = {}

    def read(self) -> None:
        """Read up to the current end of the topic. Raises UnreachableError, WaitTimeoutError."""
        bounds = self._kafka.bounds(self._topic)
        starts = {number: max(self._next_offsets.get(number, 0), bound.first) for number, bound in bounds.items()}
        unread = {number: start for number, start in starts.items() if start < bounds[number].end}
        read_records(self._kafka.kafka, self._topic, unread, self._add_record, seconds=READ_TIMEOUT_S)
        self._next_offsets = {number: bound.end for number, bound in bounds.items()}

    def keys_with_state(self) -> set[str]:
        """Return the keys whose latest record is not a tombstone."""
        return {key for key, record in self.by_key.items() if record.has_state}

    def _add_record(self, message: Message) -> None:
        key_bytes = message.key()
        if not isinstance(key_bytes, bytes):
            return
        key, headers = key_bytes.decode(errors="replace"), text_headers(message)
        sequence = headers.get("source_sequence", "")
        # After partitions were added, a key can have records in two of them: source_sequence orders these records.
        if key in self.by_key and self.by_key[key].sequence > sequence:
            return
        self.by_key[key] = LatestRecord(
            sequence, headers.get("event_id", ""), headers.get("event_time", ""), message.value() is not None
        )


def list_stuck(deployment: Deployment, progress: Reporter, *, older_than: float) -> list[StuckAggregate]:
    """Return the stuck aggregates in sorted order. Outbox rows younger than `older_than` seconds are ignored.

    Each topic is read after the outbox rows of its type, so that it includes their records. Raises UnreachableError,
    RejectedError, and RefusedError for a pipeline without an outbox table.
    """
    if not deployment.pipeline.source.uses_table:
        raise RefusedError(
            f"pipeline {deployment.pipeline.name} writes events as logical decoding messages (source.message_prefix), "
            "so there is no outbox table with which its topics can be compared",
            "run `outbox verify`, which sends a canary through the pipeline",
        )
    aggregates: list[StuckAggregate] = []
    uncompared_types: list[str] = []
    with postgres_client.connected(deployment.environment.source) as connection:
        for name, aggregate in deployment.pipeline.aggregates.items():
            progress(f"compare {name} with topic {deployment.pipeline.topic_of(name)}")
            rows = aggregate_queries.latest_events(
                connection, deployment.pipeline.source, name, aggregate, older_than=older_than
            )
            if not rows and aggregate.backfill is None:
                uncompared_types.append(name)
                continue
            table_keys = aggregate_queries.live_keys(connection, aggregate.backfill) if aggregate.backfill else set()
            topic = LatestRecords(deployment, deployment.pipeline.topic_of(name))
            topic.read()
            aggregates += unconfirmed_aggregates(name, rows, topic.by_key)
            if aggregate.backfill:
                compared_keys = {row["key"] for row in rows}
                aggregates += _compare_with_table(
                    connection, name, aggregate.backfill, table_keys, topic, compared_keys, older_than
                )
    reason = f"no outbox row is older than {older_than:g} s, and the aggregate has no `backfill`"
    for name in uncompared_types:
        progress(f"{name} is not compared: {reason}")
    return sorted(aggregates, key=lambda stuck: (stuck.aggregate_type, stuck.kind, stuck.key))


def unconfirmed_aggregates(
    aggregate_type: str, rows: Iterable[Row], latest: dict[str, LatestRecord]
) -> list[StuckAggregate]:
    """Return the aggregates whose latest outbox row is not confirmed. `rows` is the result of latest_events()."""
    aggregates = []
    for row in rows:
        record = latest.get(row["key"])
        if record is None and row["deleted"]:
            continue
        if record is not None and _confirms(record, row):
            continue
        kind: Kind = "missing" if record is None else "stale"
        aggregates.append(
            StuckAggregate(aggregate_type, row["key"], kind, row["event_ids"][0], row["created_at"].isoformat())
        )
    return aggregates


def _confirms(record: LatestRecord, row: Row) -> bool:
    if record.event_id in row["event_ids"]:
        return True
    try:
        event_time = datetime.fromisoformat(record.event_time)
    except ValueError:
        return False
    return bool(event_time.tzinfo is not None and event_time >= row["created_at"])


def _compare_with_table(
    connection: Connection,
    name: str,
    business_table: Backfill,
    table_keys: set[str],
    topic: LatestRecords,
    compared_keys: set[str],
    older_than: float,
) -> list[StuckAggregate]:
    """Return aggregates without a state on the topic, and states on the topic without a row in the business table.

    Wait at most `older_than` seconds for missing records. `table_keys` are the keys of the business table. Keys in
    `compared_keys` are excluded, because their outbox rows were compared already.
    """
    missing_keys = table_keys - compared_keys
    ghost_keys = topic.keys_with_state() - table_keys - compared_keys

    def poll() -> Observation[bool]:
        nonlocal missing_keys, ghost_keys
        topic.read()
        keys_with_state = topic.keys_with_state()
        missing_keys, ghost_keys = missing_keys - keys_with_state, ghost_keys & keys_with_state
        if missing_keys or ghost_keys:
            # Aggregates may have been created or deleted since `table_keys` were read.
            current_keys = aggregate_queries.live_keys(connection, business_table)
            missing_keys, ghost_keys = missing_keys & current_keys, ghost_keys - current_keys
        return Observation(
            None if missing_keys or ghost_keys else True,
            f"{len(missing_keys)} missing, {len(ghost_keys)} without an aggregate",
        )

    # The record of a state that was just committed has `older_than` seconds to arrive, as for outbox rows.
    with suppress(WaitTimeoutError):
        wait_for(f"aggregates of type {name} on their topic", poll, seconds=older_than, interval=POLL_INTERVAL_S)
    return [
        *(StuckAggregate(name, key, "missing") for key in missing_keys),
        *(
            StuckAggregate(name, key, "ghost", topic.by_key[key].event_id, topic.by_key[key].event_time)
            for key in ghost_keys
        ),
    ]


def resend(deployment: Deployment, aggregates: list[StuckAggregate], progress: Reporter) -> int:
    """Write the latest state of each aggregate, or a tombstone if it was deleted, to the outbox; return the row count.

    Raises RefusedError if a type has no `backfill` in the pipeline file.
    """
    types = sorted({entry.aggregate_type for entry in aggregates})
    types_without_backfill = [name for name in types if deployment.pipeline.aggregates[name].backfill is None]
    if types_without_backfill:
        raise RefusedError(
            f"aggregate type {types_without_backfill[0]} has no `backfill` in the pipeline file: states cannot be read",
            "add `backfill` (table, key, query) for this type, or emit the states again from the service",
        )
    row_count = 0
    for name in types:
        keys = [entry.key for entry in aggregates if entry.aggregate_type == name]
        row_count += backfill.republish(deployment, name, keys, progress, tombstones=True)
    return row_count
