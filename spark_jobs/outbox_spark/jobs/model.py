"""What the steps of a run hand to one another. Plain data: no Spark, no network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from outbox_spark.errors import RefusedError

Progress = Callable[[str], None]
"""Receives progress messages and warnings, one line each."""

LAYOUT_VERSION = 2
"""Version of what is stored with and beside the rows (offsets, tombstone ledger, quarantine, columns of ours).

1: no times, no `_stale`. 2: `committed_at`, `ledger_since`, the column `_stale`. A target of version 1 is upgraded by
its next run.
"""


class Mode(StrEnum):
    """What a deleted key leaves in the table."""

    HARD_DELETE = "hard-delete"
    SOFT_DELETE = "soft-delete"
    """The last row, with `_deleted_at`."""
    HISTORY = "history"
    """A row for every version, with `_valid_from` and `_valid_to`."""


class Format(StrEnum):
    """How keys or values are written."""

    TEXT = "text"
    """Keys only: UTF-8, or an Avro string in Confluent wire format."""
    AVRO = "avro"
    """Values only: Avro with the schema id in the prefix or in a header, record by record."""
    JSON = "json"
    JSON_WITH_SCHEMA = "json-with-schema"
    """{"schema": ..., "payload": ...} of Kafka Connect's JsonConverter."""


class MissedTombstones(StrEnum):
    """What to do when tombstones may have been removed before they were read."""

    RECONCILE = "reconcile"
    REFUSE = "refuse"


class Ordering(StrEnum):
    """What decides which record of a key is newest; one kind per table, never both."""

    SEQUENCE = "sequence"
    """By (source_sequence header, partition epoch, offset): topics of outbox-kit."""

    OFFSET = "offset"
    """By (partition epoch, offset): topics whose records carry no source_sequence."""


@dataclass(frozen=True)
class Source:
    """A source table: one row per aggregate, whose key as text is the aggregate_id."""

    host: str
    port: int
    database: str
    user: str
    password: str = field(repr=False)
    table: str
    key: str
    slot: str
    sslmode: str | None = None
    sslrootcert: str | None = None


@dataclass(frozen=True)
class Registry:
    """A registry with the Confluent REST API."""

    url: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    """Bearer token, instead of a password."""
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    """PEM files, as the driver sees them."""


@dataclass(frozen=True)
class PostgresTarget:
    """A PostgreSQL schema that holds the tables."""

    host: str
    port: int
    database: str
    user: str
    password: str = field(repr=False)
    schema: str = "public"
    sslmode: str | None = None
    """As libpq and PostgreSQL's JDBC driver know it; None: their own default."""
    sslrootcert: str | None = None
    """File with the authority's certificate, as driver and executors see it."""


@dataclass(frozen=True)
class DeltaTarget:
    """A folder or object store prefix that holds the tables, one folder each."""

    path: str


@dataclass(frozen=True)
class IcebergTarget:
    """A namespace of an Iceberg catalog that holds the tables."""

    namespace: str
    catalog: Mapping[str, str] = field(repr=False)
    """Settings as Iceberg's Spark catalog takes them: type, warehouse, uri, ..."""


Target = PostgresTarget | DeltaTarget | IcebergTarget


@dataclass(frozen=True)
class Options:
    """How one table is materialized."""

    mode: Mode = Mode.HARD_DELETE
    key_format: Format = Format.TEXT
    value_format: Format = Format.AVRO
    schema_version: int | None = None
    """Version of the subject that decides the columns; None: the newest."""
    tombstone_ttl: timedelta = timedelta(days=30)
    missed_tombstones: MissedTombstones = MissedTombstones.RECONCILE
    max_quarantined: int = 1000
    """A batch with more unreadable records stops the run before anything is written."""


@dataclass(frozen=True)
class MaterializeJob:
    """One topic becomes one table."""

    aggregate: str
    topic: str
    table: str
    kafka: Mapping[str, str] = field(repr=False)
    """librdkafka settings, `bootstrap.servers` among them."""
    registry: Registry
    target_name: str
    target: Target
    options: Options = Options()

    def __str__(self) -> str:
        return f"{self.topic} -> {self.target_name}.{self.table}"


@dataclass(frozen=True)
class Committed:
    """How far a table is: stored in the target, in the same commit as the rows it speaks of."""

    topic: str
    topic_id: str
    partition_epoch: int
    """0 at first; one more each time the topic was found with more partitions."""
    ordering: Ordering | None
    """None until the first record has been read."""
    offsets: Mapping[int, int]
    """By partition: the offset that the next run starts at."""
    run: int
    """Counts the commits of this table, from 1."""
    committed_at: datetime | None = None
    """When it was committed (UTC, the driver's clock); None in what layout 1 wrote."""
    ledger_since: datetime | None = None
    """Deletions whose records are older (Kafka timestamp) are forgotten; None: all are remembered."""

    def to_json(self) -> dict[str, Any]:
        """As stored in the target."""
        return {
            "layout": LAYOUT_VERSION,
            "topic": self.topic,
            "topic_id": self.topic_id,
            "partition_epoch": self.partition_epoch,
            "ordering": self.ordering,
            "offsets": offsets_json(self.offsets),
            "run": self.run,
            "committed_at": time_json(self.committed_at),
            "ledger_since": time_json(self.ledger_since),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any], where: str) -> Committed:
        """Read what `to_json` wrote. Raises RefusedError when a newer version of the jobs wrote it."""
        layout = int(stored["layout"])
        if layout > LAYOUT_VERSION:
            message = f"{where} was written with layout {layout}; these jobs know layouts up to {LAYOUT_VERSION}"
            raise RefusedError(message, "run the version of outbox-kit that wrote it, or a newer one")
        ordering = stored["ordering"]
        return cls(
            topic=stored["topic"],
            topic_id=stored["topic_id"],
            partition_epoch=int(stored["partition_epoch"]),
            ordering=None if ordering is None else Ordering(ordering),
            offsets={int(partition): int(offset) for partition, offset in stored["offsets"].items()},
            run=int(stored["run"]),
            committed_at=_time(stored.get("committed_at")),
            ledger_since=_time(stored.get("ledger_since")),
        )


def offsets_json(offsets: Mapping[int, int]) -> dict[str, int]:
    """Offsets by partition. JSON objects have text keys, so partitions become text."""
    return {str(partition): offset for partition, offset in sorted(offsets.items())}


def time_json(time: datetime | None) -> str | None:
    """A time in UTC, ISO 8601."""
    return None if time is None else time.astimezone(UTC).isoformat()


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


@dataclass(frozen=True)
class ReadRange:
    """The records that one run reads: per partition from `start` (included) to `end` (excluded)."""

    topic: str
    topic_id: str
    partition_epoch: int
    start: Mapping[int, int]
    end: Mapping[int, int]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing between start and end in any partition."""
        return all(self.start[partition] == end for partition, end in self.end.items())

    def committed(self, previous: Committed | None, ordering: Ordering | None) -> Committed:
        """What the table's progress is once this range has been applied."""
        return Committed(
            topic=self.topic,
            topic_id=self.topic_id,
            partition_epoch=self.partition_epoch,
            ordering=ordering,
            offsets=dict(self.end),
            run=1 if previous is None else previous.run + 1,
            committed_at=datetime.now(UTC),
            ledger_since=None if previous is None else previous.ledger_since,
        )


@dataclass(frozen=True)
class Written:
    """What one commit changed in the target, in rows."""

    upserts: int = 0
    deletes: int = 0
    tombstones: int = 0
    """Ledger entries that were new or moved forward."""
    quarantined: int = 0

    def plus(self, other: Written) -> Written:
        """The sum of two commits."""
        return Written(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


class Status(StrEnum):
    """How a materialization ended."""

    CHANGED = "changed"
    UNCHANGED = "unchanged"
    FAILED = "failed"


@dataclass(frozen=True)
class Outcome:
    """The result of one materialization: what `--output json` prints."""

    aggregate: str
    topic: str
    target: str
    table: str
    status: Status
    records: int = 0
    keys: int = 0
    upserts: int = 0
    deletes: int = 0
    tombstones: int = 0
    quarantined: int = 0
    batches: int = 0
    seconds: float = 0.0
    offsets_from: Mapping[int, int] = field(default_factory=dict)
    offsets_to: Mapping[int, int] = field(default_factory=dict)
    error: str | None = None
    hint: str | None = None
    transient: bool = True
    """Of a failure: whether trying again may help."""

    def then(self, rest: Outcome) -> Outcome:
        """With what the run after this one did."""
        sums = {name: getattr(self, name) + getattr(rest, name) for name in _COUNTS}
        return replace(self, **sums, seconds=round(self.seconds + rest.seconds, 3), offsets_to=rest.offsets_to)


_COUNTS = ("records", "keys", "upserts", "deletes", "tombstones", "quarantined", "batches")
