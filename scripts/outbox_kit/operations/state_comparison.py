"""Compare the outbox table and the business tables with the latest records on the topics.

The newest outbox row of an aggregate is confirmed if one of these conditions holds:
- the latest record of its key has the event id of that row, or of a row that was inserted later;
- the latest record was committed after the WAL position that was read after the rows, so it is newer than every row;
- the row is a deletion, and the topic has no record of the key, because compaction removes tombstones.

Times do not decide which state is newer, because services and backups can write any created_at. Rows that were deleted
from the outbox table cannot be compared. If the aggregate has a `backfill`, its business table is also compared. An
aggregate without a record is `missing`. A record with a state but without an aggregate is a `ghost`. A record whose
value is not the state that the query returns is `different`. Values are compared for a sample of the keys.

Producers other than the connector can write unexpected records. A key is `overwritten` if an older record follows its
newest record, which compaction then removes. A state is `misplaced` if its partition is neither the key's partition nor
that of the key's newest tombstone, so that no later record replaces the state. The newest record of a key is `ahead`
if its source_sequence is beyond the source's position, so that the next events for the key are older than the record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from outbox_events.contract.source_sequence import WalPosition
from outbox_events.errors import OutboxError, RejectedError
from outbox_events.waiting import Deadline, Observation, wait_for
from outbox_kit.delivery.preconditions import require_table
from outbox_kit.delivery.proof import is_confirmed
from outbox_kit.deployment import Deployment, connector_epoch
from outbox_kit.kafka.latest_records import READ_TIMEOUT_S, LatestRecord, LatestRecords, ValueSample
from outbox_kit.operations.value_comparison import Difference, ValueDecoder
from outbox_kit.pipeline import Backfill
from outbox_kit.postgres import aggregate_queries
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres.client import Connection, Row
from outbox_kit.postgres.replication_slot import is_confirmed_by, read_slot
from outbox_kit.results import Reporter

POLL_INTERVAL_S = 1.0
AHEAD = "the record has a source_sequence that the source has not reached, so that the next events are older"

Kind = Literal["missing", "stale", "ghost", "different", "overwritten", "misplaced", "ahead"]


@dataclass(frozen=True)
class StuckAggregate:
    """One stuck aggregate. `since` is the created_at of its latest outbox row, or the event_time of its record.

    `fields` contains the fields in which a record of kind `different` differs. `partitions` contains the wrong
    partitions in which the key has a state. `ahead` is true if the source has not reached the record's source_sequence.
    `partitions` and `ahead` can be set for any kind.
    """

    aggregate_type: str
    key: str
    kind: Kind
    event_id: str = ""
    since: str = ""
    fields: tuple[str, ...] = ()
    partitions: tuple[int, ...] = ()
    ahead: bool = False

    @property
    def problem(self) -> str:
        problem = {
            "missing": "no record on the topic",
            "stale": "the record on the topic is older than the outbox row",
            "ghost": "a record on the topic, but no aggregate in the database",
            "different": f"the record differs from the aggregate in the database: {', '.join(self.fields)}",
            "overwritten": "an older record follows the newest one, so compaction will remove the newest one",
            "misplaced": f"a state in a wrong partition: {', '.join(map(str, self.partitions))}",
            "ahead": AHEAD,
        }[self.kind]
        return f"{problem}; {AHEAD}" if self.ahead and self.kind != "ahead" else problem


@dataclass(frozen=True)
class ComparisonResult:
    """Sorted stuck aggregates, and a mapping from each aggregate type to its compared keys.

    A type without a `backfill` and without an outbox row of sufficient age is not compared. `value_counts` maps each
    type to the number of keys whose values were compared. For `sampled_types`, the values of other keys were not.
    """

    stuck: list[StuckAggregate]
    compared_keys: dict[str, set[str]]
    value_counts: dict[str, int] = field(default_factory=dict)
    sampled_types: set[str] = field(default_factory=set)

    def uncompared_types(self, aggregate_types: Iterable[str]) -> list[str]:
        return [name for name in aggregate_types if name not in self.compared_keys]


@dataclass
class StateComparison:
    """Compares the states of a deployment. Each repeated run reads only the new records on the topics.

    Outbox rows younger than `older_than` seconds are ignored. Each run takes at most `seconds`, and reads at most
    `max_records` from each topic.
    """

    deployment: Deployment
    older_than: float
    seconds: float = READ_TIMEOUT_S
    max_records: int | None = None
    _topics: dict[str, LatestRecords] = field(default_factory=dict)

    def topic(self, aggregate_type: str) -> LatestRecords:
        """Return the latest records of an aggregate type's topic. run() reads them if it compares the type."""
        if aggregate_type not in self._topics:
            name = self.deployment.pipeline.topic_of(aggregate_type)
            has_partition_field = self.deployment.pipeline.aggregates[aggregate_type].partition_field is not None
            self._topics[aggregate_type] = LatestRecords(
                self.deployment.kafka,
                name,
                max_records=self.max_records,
                sample=ValueSample(),
                hashed_keys=not has_partition_field,
            )
        return self._topics[aggregate_type]

    def run(self, progress: Reporter) -> ComparisonResult:
        """Compare every aggregate type with its topic.

        Raises UnreachableError, RejectedError and WaitTimeoutError. Raises RefusedError if the pipeline has no outbox
        table, or if a topic has too many records.
        """
        pipeline, deadline = self.deployment.pipeline, Deadline(self.seconds)
        require_table(pipeline, "run `outbox verify`, which sends a canary through the pipeline")
        result = ComparisonResult([], {})
        with postgres_client.connected(self.deployment.environment.source) as connection:
            epoch = _comparable_epoch(self.deployment, connection)
            for name in pipeline.aggregates:
                progress(f"compare {name} with topic {pipeline.topic_of(name)}")
                self._compare_type(connection, name, epoch, deadline, result)
        result.stuck.sort(key=lambda entry: (entry.aggregate_type, entry.kind, entry.key))
        return result

    def _schema_text(self, schema_id: int) -> str | None:
        """Return the schema with this id; None if the registry does not have it or does not respond."""
        registry = self.deployment.registry
        try:
            schema = registry.by_id(schema_id)
            return registry.inlined(schema, f"schema id {schema_id}") if schema else None
        except OutboxError:
            return None

    def _compare_type(
        self, connection: Connection, name: str, epoch: int | None, deadline: Deadline, result: ComparisonResult
    ) -> None:
        """Add the stuck aggregates and the compared keys of one type to the result."""
        pipeline, business_table = self.deployment.pipeline, self.deployment.pipeline.aggregates[name].backfill
        read = partial(
            aggregate_queries.latest_events,
            connection,
            pipeline.source,
            name,
            pipeline.aggregates[name],
            older_than=self.older_than,
        )
        with postgres_client.snapshot(connection) as lsn:
            rows = read(seconds=deadline.seconds_left)
        if not rows and business_table is None:
            return
        is_json = pipeline.aggregates[name].payload == "json"
        decoder = ValueDecoder(self.deployment.lock(), name, self._schema_text) if is_json else None
        position = None if epoch is None or lsn is None else WalPosition(epoch, lsn)
        topic = self.topic(name)
        comparison = _TypeComparison(connection, business_table, decoder, rows, position, epoch, topic, deadline)
        comparison.wait(f"states of type {name} on their topic", self.older_than, pipeline.source.slot)
        if comparison.rows:
            # The WAL contains a commit before it is visible, so that the record of an unread row can be before lsn.
            comparison.confirm(read(seconds=deadline.seconds_left, keys=[row["key"] for row in comparison.rows]))
        result.stuck.extend(comparison.stuck_aggregates(name))
        result.compared_keys[name] = comparison.compared_keys
        result.value_counts[name] = comparison.value_count
        sample = self.topic(name).sample
        if sample and not sample.is_complete:
            result.sampled_types.add(name)


@dataclass
class _TypeComparison:
    """Compares one aggregate type. The topic is read after the tables, so that it already has the tables' states.

    A key whose newest outbox row is not confirmed is listed only once.
    """

    connection: Connection
    business_table: Backfill | None
    decoder: ValueDecoder | None
    rows: list[Row]
    position: WalPosition | None
    epoch: int | None
    topic: LatestRecords
    deadline: Deadline

    def __post_init__(self) -> None:
        row_keys, table_keys = {row["key"] for row in self.rows}, self._live_keys()
        self._table_keys, self.compared_keys = table_keys, row_keys | table_keys
        topic = self.topic
        topic.read(seconds=self.deadline.seconds_left)
        self._missing_keys = table_keys - self._present_keys()
        self._ghost_keys = topic.keys_with_state() - table_keys if self.business_table else set()
        sampled_keys = topic.sample.values.keys() & table_keys if topic.sample and self.decoder else set()
        self.value_count = len(sampled_keys)
        self._differences = self._read_differences(sampled_keys)
        self._overwritten_keys, self._misplaced = self._read_overwritten(), topic.misplaced_states()
        self._ahead_keys = self._read_ahead(topic.by_key)

    def wait(self, subject: str, seconds: float, slot_name: str) -> None:
        """Wait at most `seconds` for the records of states that may have just been committed.

        The wait ends when the slot has confirmed all WAL from before the wait, because records that arrive later do
        not belong to these states. Raises WaitTimeoutError after the deadline.
        """
        grace_period, position = Deadline(seconds), postgres_client.read_insert_position(self.connection)
        is_delivered = False

        def poll() -> Observation[bool]:
            nonlocal is_delivered
            self._update()
            recent_count = sum(row["recent"] for row in self.rows)
            counts = {
                "missing": recent_count + len(self._missing_keys),
                "without an aggregate": len(self._ghost_keys),
                "different": len(self._differences),
                "overwritten": len(self._overwritten_keys),
                "misplaced": len(self._misplaced),
            }
            is_done = not any(counts.values()) or is_delivered or not grace_period.seconds_left
            # This takes effect at the next poll: consumers see records shortly after the commit of their offset.
            is_delivered = is_confirmed_by(read_slot(self.connection, slot_name), position)
            return Observation(is_done or None, ", ".join(f"{count} {name}" for name, count in counts.items()))

        wait_for(subject, poll, seconds=self.deadline.seconds_left, interval=POLL_INTERVAL_S)

    def confirm(self, rows: list[Row]) -> None:
        """Set `rows` to those of the given rows that no record confirms."""
        latest = self.topic.by_key
        self.rows = [row for row in rows if not is_confirmed(row, latest.get(row["key"]), self.position)]

    def stuck_aggregates(self, aggregate_type: str) -> list[StuckAggregate]:
        latest = self.topic.by_key
        entries = {row["key"]: stuck_row(aggregate_type, row, latest.get(row["key"])) for row in self.rows}
        kinds: dict[Kind, Collection[str]] = {
            "missing": self._missing_keys,
            "ghost": self._ghost_keys,
            "overwritten": self._overwritten_keys,
            "different": self._differences,
            "misplaced": self._misplaced,
            "ahead": self._ahead_keys,
        }
        for kind, keys in kinds.items():
            entries |= {key: self._stuck_key(aggregate_type, key, kind) for key in keys if key not in entries}
        return [
            replace(entry, partitions=self._misplaced.get(key, ()), ahead=key in self._ahead_keys)
            for key, entry in entries.items()
        ]

    def _stuck_key(self, aggregate_type: str, key: str, kind: Kind) -> StuckAggregate:
        if kind == "missing":
            return StuckAggregate(aggregate_type, key, kind)
        record, difference = self.topic.by_key[key], self._differences.get(key)
        fields = difference.fields if difference and kind == "different" else ()
        return StuckAggregate(aggregate_type, key, kind, record.event_id, record.event_time, fields)

    def _update(self) -> None:
        """Read the new records, and remove the entries that they confirm."""
        self.topic.read(seconds=self.deadline.seconds_left)
        keys_with_state = self.topic.keys_with_state()
        self.confirm(self.rows)
        self._missing_keys -= self._present_keys()
        self._ghost_keys &= keys_with_state
        if self._missing_keys or self._ghost_keys:
            # Aggregates may have been created or deleted since the keys were read.
            live_keys = self._live_keys()
            self._missing_keys &= live_keys
            self._ghost_keys -= live_keys
        if self._differences:
            # An aggregate whose state or record has changed since the last comparison is being updated.
            differences = self._read_differences(self._differences.keys() & keys_with_state)
            self._differences = {k: entry for k, entry in differences.items() if entry == self._differences[k]}
        self._overwritten_keys &= self._read_overwritten()
        misplaced = self.topic.misplaced_states()
        self._misplaced = {key: misplaced[key] for key in self._misplaced.keys() & misplaced.keys()}
        self._ahead_keys = self._read_ahead(self._ahead_keys)

    def _present_keys(self) -> set[str]:
        """Return the keys whose newest record is a state, or for which compaction retains a state."""
        topic = self.topic
        return topic.keys_with_state() | {key for key in topic.overwritten if topic.by_key[key].has_state}

    def _read_overwritten(self) -> set[str]:
        """Return the keys of which compaction retains an older record, unless it is a deleted aggregate's tombstone."""
        live_keys, has_table = self._table_keys, self.business_table is not None
        overwritten = self.topic.overwritten.items()
        return {key for key, is_state in overwritten if is_state or not has_table or key in live_keys}

    def _read_ahead(self, keys: Iterable[str]) -> set[str]:
        """Return those `keys` whose newest record is ahead of the source's current position."""
        position, latest = self._read_position(), self.topic.by_key
        return {key for key in keys if position and position.is_exceeded_by(latest[key].version)}

    def _read_position(self) -> WalPosition | None:
        """Return the source's current position; None if it cannot be compared with the positions of the records."""
        lsn = None if self.epoch is None else postgres_client.read_insert_position(self.connection)
        return None if self.epoch is None or lsn is None else WalPosition(self.epoch, lsn)

    def _read_differences(self, keys: Collection[str]) -> dict[str, Difference]:
        """Return a mapping from key to the difference between the record's value and the current state, if any."""
        table, decoder, sample = self.business_table, self.decoder, self.topic.sample
        if not keys or table is None or decoder is None or sample is None:
            return {}
        states = aggregate_queries.states(self.connection, table, keys, seconds=self.deadline.seconds_left)
        latest, values = self.topic.by_key, sample.values
        return {
            key: Difference(fields, latest[key].version, state)
            for key, state in states.items()
            if key in values and (fields := decoder.different_fields(values[key], state))
        }

    def _live_keys(self) -> set[str]:
        if self.business_table is None:
            return set()
        return aggregate_queries.live_keys(self.connection, self.business_table, seconds=self.deadline.seconds_left)


def stuck_row(aggregate_type: str, row: Row, record: LatestRecord | None) -> StuckAggregate:
    """Return the stuck aggregate of a row that is not confirmed. `row` comes from latest_events()."""
    kind: Kind = "missing" if record is None else "stale"
    return StuckAggregate(aggregate_type, row["key"], kind, row["event_ids"][0], row["created_at"])


def _comparable_epoch(deployment: Deployment, connection: Connection) -> int | None:
    """Return the current source epoch; None if the database is not the one in the lock file.

    LSNs of another database, or from before a promotion, cannot be compared with those of the records.
    """
    lock = deployment.lock()
    if lock is None or lock.source is None:
        return None
    try:
        system_identifier = postgres_client.read_system_identifier(connection)
    except RejectedError:
        return None
    timeline = postgres_client.read_server(connection)["timeline"]
    is_same = (system_identifier, timeline) == (lock.source.system_identifier, lock.source.timeline)
    return max(lock.source_epoch, connector_epoch(deployment)) if is_same else None
