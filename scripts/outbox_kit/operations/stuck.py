"""Aggregates whose newest committed state is not proven to be on their topic.

Proof that an aggregate's newest outbox row arrived, any of these:
- the newest record of its key carries the event id of that row, of a row with the same created_at (rows of one
  transaction share it), or of the row that was inserted last (a clock can be set back);
- that record's event_time is not before the row's created_at;
- the row says that the aggregate is gone, and the topic has no record of the key: Kafka removes tombstones too.

created_at is the beginning of the transaction: one that was open for long can be listed for the moment between
its commit and its record. Rows that the table no longer holds prove nothing and are not asked for; with `backfill`
in the pipeline file, aggregates of the business table are looked for on the topic as well, and the other way
round: a live record of an aggregate that is gone is a ghost.
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
from outbox_kit.kafka import consumer_groups
from outbox_kit.kafka.topic_reader import read_each, text_headers
from outbox_kit.pipeline import Backfill
from outbox_kit.postgres import aggregate_queries as postgres_aggregates
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres.client import Connection, Row
from outbox_kit.progress import Progress
from outbox_kit.waiting import Seen, wait_for

READ_TIMEOUT_S = 3600
AGAIN_EVERY_S = 1.0

Kind = Literal["missing", "stale", "ghost"]


@dataclass(frozen=True)
class Stuck:
    """One aggregate without proof: nothing on the topic, an older record, or a record of what is gone."""

    aggregate_type: str
    key: str
    kind: Kind
    event_id: str = ""
    since: str = ""

    @property
    def words(self) -> str:
        return {
            "missing": "no record on the topic",
            "stale": "the record on the topic is older",
            "ghost": "a record on the topic, no aggregate in the database",
        }[self.kind]


@dataclass(frozen=True)
class Latest:
    """What the newest record of a key says."""

    sequence: str
    event_id: str
    event_time: str
    live: bool


class TopicState:
    """The newest record of each key, by key; reads a topic once, and later only what came since."""

    def __init__(self, deployment: Deployment, topic: str) -> None:
        self._kafka = deployment.environment.kafka
        self._topic = topic
        self._next: dict[int, int] = {}
        self.latest: dict[str, Latest] = {}

    def read(self) -> None:
        """Read on to the present end. Raises UnreachableError, WaitTimeoutError."""
        bounds = consumer_groups.bounds(self._kafka, self._topic)
        starts = {number: max(self._next.get(number, 0), bound.first) for number, bound in bounds.items()}
        unread = {number: start for number, start in starts.items() if start < bounds[number].end}
        read_each(self._kafka, self._topic, unread, self._take, seconds=READ_TIMEOUT_S)
        self._next = {number: bound.end for number, bound in bounds.items()}

    def live(self) -> set[str]:
        """Keys whose newest record is a state."""
        return {key for key, record in self.latest.items() if record.live}

    def _take(self, message: Message) -> None:
        raw = message.key()
        if not isinstance(raw, bytes):
            return
        key, headers = raw.decode(errors="replace"), text_headers(message)
        sequence = headers.get("source_sequence", "")
        # Offsets order one partition; a topic that grew has a key in two of them, and the sequence orders those.
        if key in self.latest and self.latest[key].sequence > sequence:
            return
        self.latest[key] = Latest(
            sequence, headers.get("event_id", ""), headers.get("event_time", ""), message.value() is not None
        )


def find(deployment: Deployment, progress: Progress, *, older_than: float) -> list[Stuck]:
    """Every aggregate without proof, by type and key. `older_than` is in seconds.

    The database is read before the topic, so that what arrives meanwhile counts. Raises UnreachableError,
    RejectedError; RefusedError where there is no outbox table.
    """
    if not deployment.pipeline.source.uses_table:
        raise RefusedError(
            f"pipeline {deployment.pipeline.name} has messages (source.message_prefix) and no outbox table: what was "
            "written stands nowhere to compare the topics with",
            "outbox verify proves that what is written now arrives",
        )
    found: list[Stuck] = []
    silent: list[str] = []
    with postgres_client.connected(deployment.environment.source) as connection:
        for name, aggregate in deployment.pipeline.aggregates.items():
            progress(f"compare {name} with topic {deployment.pipeline.topic_of(name)}")
            rows = postgres_aggregates.newest_events(
                connection, deployment.pipeline.source, name, aggregate, older_than=older_than
            )
            if not rows and aggregate.backfill is None:
                silent.append(name)
                continue
            keys = postgres_aggregates.live_keys(connection, aggregate.backfill) if aggregate.backfill else set()
            state = TopicState(deployment, deployment.pipeline.topic_of(name))
            state.read()
            by_row = unproven(name, rows, state.latest)
            found += by_row
            if aggregate.backfill:
                known = {entry.key for entry in by_row} | {row["key"] for row in rows}
                found += _by_table(connection, name, aggregate.backfill, keys, state, known, older_than=older_than)
    for name in silent:
        progress(
            f"{name}: the outbox table has no row older than {older_than:g} s, and the pipeline file no `backfill`: "
            "nothing to compare with"
        )
    return sorted(found, key=lambda entry: (entry.aggregate_type, entry.kind, entry.key))


def unproven(aggregate_type: str, rows: Iterable[Row], latest: dict[str, Latest]) -> list[Stuck]:
    """Aggregates whose newest outbox row (newest_events) nothing on the topic proves."""
    found = []
    for row in rows:
        record = latest.get(row["key"])
        if record is None and row["gone"]:
            continue
        if record is not None and _proves(record, row):
            continue
        kind: Kind = "missing" if record is None else "stale"
        found.append(Stuck(aggregate_type, row["key"], kind, row["event_ids"][0], row["created_at"].isoformat()))
    return found


def _proves(record: Latest, row: Row) -> bool:
    if record.event_id in row["event_ids"]:
        return True
    try:
        when = datetime.fromisoformat(record.event_time)
    except ValueError:
        return False
    return bool(when.tzinfo is not None and when >= row["created_at"])


def _by_table(
    connection: Connection,
    name: str,
    source: Backfill,
    keys: set[str],
    state: TopicState,
    known: set[str],
    *,
    older_than: float,
) -> list[Stuck]:
    """Aggregates of the business table that the topic lacks, and ghosts; both for as long as `older_than`.

    `known` are keys that an outbox row was held against already.
    """
    missing, ghosts = keys - known, state.live() - keys - known

    def look() -> Seen[bool]:
        nonlocal missing, ghosts
        state.read()
        missing, ghosts = missing - state.live(), ghosts & state.live()
        if missing or ghosts:
            # Aggregates come and go meanwhile.
            now = postgres_aggregates.live_keys(connection, source)
            missing, ghosts = missing & now, ghosts - now
        return Seen(None if missing or ghosts else True, f"{len(missing)} missing, {len(ghosts)} ghosts")

    # What was just committed has the same time to arrive that an outbox row has.
    with suppress(WaitTimeoutError):
        wait_for(f"aggregates of type {name} on their topic", look, seconds=older_than, every=AGAIN_EVERY_S)
    return [
        *(Stuck(name, key, "missing") for key in missing),
        *(Stuck(name, key, "ghost", state.latest[key].event_id, state.latest[key].event_time) for key in ghosts),
    ]


def resend(deployment: Deployment, found: list[Stuck], progress: Progress) -> int:
    """Write the newest state of each aggregate into the outbox again, a tombstone for a ghost; returns how many.

    Raises RefusedError when a type has no `backfill` in the pipeline file.
    """
    types = sorted({entry.aggregate_type for entry in found})
    lacking = [name for name in types if deployment.pipeline.aggregates[name].backfill is None]
    if lacking:
        raise RefusedError(
            f"aggregate {lacking[0]} has no `backfill` in the pipeline file: its newest state cannot be read",
            "add backfill (table, key, query), or let the service write the states again",
        )
    sent = 0
    for name in types:
        keys = [entry.key for entry in found if entry.aggregate_type == name]
        sent += backfill.republish(deployment, name, keys, progress, tombstones=True)
    return sent
