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
    """One stuck aggregate: no record on the topic, an older record, or a record of a deleted aggregate."""

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
            "ghost": "a record on the topic, no aggregate in the database",
        }[self.kind]


@dataclass(frozen=True)
class LatestRecord:
    """Latest record of a key; `has_state` is False for a tombstone."""

    sequence: str
    event_id: str
    event_time: str
    has_state: bool


class LatestRecords:
    """Latest record of each key of a topic. The first read() reads the whole topic, later calls only new records."""

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
        read_records(self._kafka.kafka, self._topic, unread, self._add, seconds=READ_TIMEOUT_S)
        self._next_offsets = {number: bound.end for number, bound in bounds.items()}

    def keys_with_state(self) -> set[str]:
        """Return the keys whose latest record is not a tombstone."""
        return {key for key, record in self.by_key.items() if record.has_state}

    def _add(self, message: Message) -> None:
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
    """Return the stuck aggregates, sorted by type, kind and key. States younger than `older_than` seconds are ignored.

    The database is read before the topic, so that records that arrive meanwhile are included. Raises UnreachableError,
    RejectedError, and RefusedError for a pipeline without an outbox table.
    """
    if not deployment.pipeline.source.uses_table:
        raise RefusedError(
            f"pipeline {deployment.pipeline.name} uses messages (source.message_prefix): without an outbox table its "
            "topics cannot be compared",
            "run `outbox verify`, which sends a canary through the pipeline",
        )
    aggregates: list[StuckAggregate] = []
    not_compared: list[str] = []
    with postgres_client.connected(deployment.environment.source) as connection:
        for name, aggregate in deployment.pipeline.aggregates.items():
            progress(f"compare {name} with topic {deployment.pipeline.topic_of(name)}")
            rows = aggregate_queries.latest_events(
                connection, deployment.pipeline.source, name, aggregate, older_than=older_than
            )
            if not rows and aggregate.backfill is None:
                not_compared.append(name)
                continue
            keys = aggregate_queries.live_keys(connection, aggregate.backfill) if aggregate.backfill else set()
            topic = LatestRecords(deployment, deployment.pipeline.topic_of(name))
            topic.read()
            aggregates += unconfirmed_aggregates(name, rows, topic.by_key)
            if aggregate.backfill:
                compared_keys = {row["key"] for row in rows}
                aggregates += _compare_with_table(
                    connection, name, aggregate.backfill, keys, topic, compared_keys, older_than
                )
    reason = f"no outbox row is older than {older_than:g} s, and the aggregate has no `backfill`"
    for name in not_compared:
        progress(f"{name} is not compared: {reason}")
    return sorted(aggregates, key=lambda entry: (entry.aggregate_type, entry.kind, entry.key))


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
    keys: set[str],
    topic: LatestRecords,
    compared_keys: set[str],
    older_than: float,
) -> list[StuckAggregate]:
    """Return keys without a state on the topic, and keys with a state on the topic but without a business row.

    Wait at most `older_than` seconds for missing records. `keys` are the keys of the business table. Keys in
    `compared_keys` are excluded, because their outbox rows were compared already.
    """
    missing = keys - compared_keys
    without_aggregate = topic.keys_with_state() - keys - compared_keys

    def poll() -> Observation[bool]:
        nonlocal missing, without_aggregate
        topic.read()
        states = topic.keys_with_state()
        missing, without_aggregate = missing - states, without_aggregate & states
        if missing or without_aggregate:
            # Aggregates may have been created or deleted meanwhile.
            current = aggregate_queries.live_keys(connection, business_table)
            missing, without_aggregate = missing & current, without_aggregate - current
        return Observation(
            None if missing or without_aggregate else True,
            f"{len(missing)} missing, {len(without_aggregate)} without an aggregate",
        )

    # A state that was just committed has `older_than` seconds to reach the topic, like the state of an outbox row.
    with suppress(WaitTimeoutError):
        wait_for(f"aggregates of type {name} on their topic", poll, seconds=older_than, interval=POLL_INTERVAL_S)
    return [
        *(StuckAggregate(name, key, "missing") for key in missing),
        *(
            StuckAggregate(name, key, "ghost", topic.by_key[key].event_id, topic.by_key[key].event_time)
            for key in without_aggregate
        ),
    ]


def resend(deployment: Deployment, aggregates: list[StuckAggregate], progress: Reporter) -> int:
    """Write the latest state of each aggregate, or a tombstone if it was deleted, to the outbox; return the number.

    Raises RefusedError if a type has no `backfill` in the pipeline file.
    """
    types = sorted({entry.aggregate_type for entry in aggregates})
    unreadable = [name for name in types if deployment.pipeline.aggregates[name].backfill is None]
    if unreadable:
        raise RefusedError(
            f"aggregate {unreadable[0]} has no `backfill` in the pipeline file: its latest state cannot be read",
            "add `backfill` (table, key, query), or let the service emit the states again",
        )
    rows = 0
    for name in types:
        keys = [entry.key for entry in aggregates if entry.aggregate_type == name]
        rows += backfill.republish(deployment, name, keys, progress, tombstones=True)
    return rows
