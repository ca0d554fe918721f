"""Stuck aggregates: their latest committed state is not confirmed to be on their topic.

The latest outbox row of an aggregate is confirmed by any of these:
- the latest record of its key has the event id of that row, of a row with the same created_at (rows of one
  transaction share it), or of the row that was inserted last (the clock may have been set back);
- that record's event_time is not before the row's created_at;
- the row is a tombstone, and the topic has no record of the key: compaction removes tombstones.

created_at is the start of the transaction, so the aggregate of a long transaction can be listed between its commit and
its record. Rows that were deleted from the table cannot be compared. With `backfill`, the business table is compared
as well: an aggregate without a record is `missing`, a record with a state but without an aggregate is a `ghost`.
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
from outbox_kit.kafka.topic_reader import read_each, text_headers
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
            "stale": "the record on the topic is older",
            "ghost": "a record on the topic, no aggregate in the database",
        }[self.kind]


@dataclass(frozen=True)
class LatestRecord:
    """Latest record of a key; `has_state` is False for a tombstone."""

    sequence: str
    event_id: str
    event_time: str
    has_state: bool


class TopicState:
    """Latest record of each key. The first read() reads the whole topic, later ones only the new records."""

    def __init__(self, deployment: Deployment, topic: str) -> None:
        self._kafka = deployment.kafka
        self._topic = topic
        self._next: dict[int, int] = {}
        self.latest: dict[str, LatestRecord] = {}

    def read(self) -> None:
        """Read up to the current end. Raises UnreachableError, WaitTimeoutError."""
        bounds = self._kafka.bounds(self._topic)
        starts = {number: max(self._next.get(number, 0), bound.first) for number, bound in bounds.items()}
        unread = {number: start for number, start in starts.items() if start < bounds[number].end}
        read_each(self._kafka.kafka, self._topic, unread, self._add, seconds=READ_TIMEOUT_S)
        self._next = {number: bound.end for number, bound in bounds.items()}

    def keys_with_state(self) -> set[str]:
        """Return the keys whose latest record is not a tombstone."""
        return {key for key, record in self.latest.items() if record.has_state}

    def _add(self, message: Message) -> None:
        raw = message.key()
        if not isinstance(raw, bytes):
            return
        key, headers = raw.decode(errors="replace"), text_headers(message)
        sequence = headers.get("source_sequence", "")
        # After partitions were added, a key can be in two of them; then source_sequence orders its records.
        if key in self.latest and self.latest[key].sequence > sequence:
            return
        self.latest[key] = LatestRecord(
            sequence, headers.get("event_id", ""), headers.get("event_time", ""), message.value() is not None
        )


def find(deployment: Deployment, progress: Reporter, *, older_than: float) -> list[StuckAggregate]:
    """Return the stuck aggregates, by type and key. States younger than `older_than` seconds are ignored.

    The database is read before the topic, so that records that arrive meanwhile count. Raises UnreachableError,
    RejectedError; RefusedError for a pipeline without an outbox table.
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
            topic = TopicState(deployment, deployment.pipeline.topic_of(name))
            topic.read()
            aggregates += unconfirmed(name, rows, topic.latest)
            if aggregate.backfill:
                compared = {row["key"] for row in rows}
                aggregates += _by_table(connection, name, aggregate.backfill, keys, topic, compared, older_than)
    reason = f"no outbox row is older than {older_than:g} s, and the aggregate has no `backfill`"
    for name in not_compared:
        progress(f"{name} is not compared: {reason}")
    return sorted(aggregates, key=lambda entry: (entry.aggregate_type, entry.kind, entry.key))


def unconfirmed(aggregate_type: str, rows: Iterable[Row], latest: dict[str, LatestRecord]) -> list[StuckAggregate]:
    """Return the aggregates whose latest outbox row, of latest_events(), no record confirms."""
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


def _by_table(
    connection: Connection,
    name: str,
    source: Backfill,
    keys: set[str],
    topic: TopicState,
    compared: set[str],
    older_than: float,
) -> list[StuckAggregate]:
    """Return what stays missing on the topic, or without an aggregate, for `older_than` seconds.

    `compared` are the keys that have an outbox row.
    """
    missing, ghosts = keys - compared, topic.keys_with_state() - keys - compared

    def poll() -> Observation[bool]:
        nonlocal missing, ghosts
        topic.read()
        states = topic.keys_with_state()
        missing, ghosts = missing - states, ghosts & states
        if missing or ghosts:
            # Aggregates may have been created or deleted meanwhile.
            current = aggregate_queries.live_keys(connection, source)
            missing, ghosts = missing & current, ghosts - current
        return Observation(
            None if missing or ghosts else True, f"{len(missing)} missing, {len(ghosts)} without an aggregate"
        )

    # States that were just committed get the same time to arrive as outbox rows.
    with suppress(WaitTimeoutError):
        wait_for(f"aggregates of type {name} on their topic", poll, seconds=older_than, interval=POLL_INTERVAL_S)
    return [
        *(StuckAggregate(name, key, "missing") for key in missing),
        *(
            StuckAggregate(name, key, "ghost", topic.latest[key].event_id, topic.latest[key].event_time)
            for key in ghosts
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
