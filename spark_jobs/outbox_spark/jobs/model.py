"""Define what the steps of a run pass to one another: jobs, the progress of tables, and the results of runs.

This module requires neither Spark nor network access. The classes of a job file are msgspec structs, whose fields are
the keys of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, astuple, dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import msgspec

from outbox_events.errors import RefusedError
from outbox_events.http_session import HttpEndpoint

Reporter = Callable[[str], None]
"""Receives progress messages and warnings, each as one line."""

LAYOUT_VERSION = 2
"""Version of the storage layout: metadata columns, progress, ledger, quarantine."""
_NAMES_NOT_IN_REPR = {"password", "kafka", "catalog"}


class Mode(StrEnum):
    """How a table represents deletions and older versions."""

    HARD_DELETE = "hard-delete"
    """A tombstone deletes the row."""
    SOFT_DELETE = "soft-delete"
    """A tombstone sets `_deleted_at`; the row remains."""
    HISTORY = "history"
    """Every version of a key is a row, with `_valid_from` and `_valid_to`."""


class RecordFormat(StrEnum):
    """Serialization format of keys or values."""

    TEXT = "text"
    """Keys only: UTF-8, or an Avro string in Confluent wire format."""
    AVRO = "avro"
    """Values only: Avro; each record has its schema id in a prefix or in a header."""
    JSON = "json"
    JSON_WITH_SCHEMA = "json-with-schema"
    """The envelope {"schema": ..., "payload": ...} that Kafka Connect's JsonConverter writes."""


class MissedTombstones(StrEnum):
    """What a run does if tombstones may have been compacted away before they were read."""

    RECONCILE = "reconcile"
    REFUSE = "refuse"


class UnsequencedRecords(StrEnum):
    """What a run does with records that have no source_sequence header."""

    REFUSE = "refuse"
    """Fail if a record with the header was read before, or is in the same batch."""
    QUARANTINE = "quarantine"
    """Quarantine them. They change no row."""


class Ordering(StrEnum):
    """How the newest record of a key is determined. A table has one ordering for all of its records."""

    SEQUENCE = "sequence"
    """By (source_sequence header, partition epoch, offset), for topics of outbox-kit."""

    OFFSET = "offset"
    """By (partition epoch, offset), for topics whose records have no source_sequence."""


class JobSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base class of the structs in a job file. repr() omits secrets and client settings."""

    def __repr__(self) -> str:
        names = [name for name in self.__struct_fields__ if name not in _NAMES_NOT_IN_REPR]
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"


class PostgresTarget(JobSettings, frozen=True, tag="postgres", tag_field="kind"):
    """A PostgreSQL schema that contains the tables."""

    host: str
    port: int
    database: str
    user: str
    password: str
    schema: str = "public"
    sslmode: str | None = None
    """Same values as in libpq and PostgreSQL's JDBC driver; None selects their default."""
    sslrootcert: str | None = None
    """Path of the CA certificate file on the driver and the executors."""


class DeltaTarget(JobSettings, frozen=True, tag="delta", tag_field="kind"):
    """A folder or object store prefix that contains one folder per table."""

    path: str
    single_writer: bool = False
    """Whether at most one driver at a time writes to the tables; see sinks/lake/single_writer.py."""


class IcebergTarget(JobSettings, frozen=True, tag="iceberg", tag_field="kind"):
    """A namespace that contains the tables, in an Iceberg catalog."""

    namespace: str
    catalog: Mapping[str, str]
    """Settings of Iceberg's Spark catalog: type, warehouse, uri, ..."""
    single_writer: bool = False


Target = PostgresTarget | DeltaTarget | IcebergTarget


@dataclass(frozen=True)
class SourceTable:
    """A source table with one row per aggregate."""

    server: PostgresTarget
    table: str
    key: str
    """SQL expression for the aggregate_id of a row. The table has the alias `t`."""
    slot: str
    query: str = ""
    """Query that returns every aggregate's `aggregate_id` and `payload` (JSON); empty if payloads are not JSON."""


class MaterializeOptions(JobSettings, frozen=True):
    """Options for the materialization of one table."""

    mode: Mode = Mode.HARD_DELETE
    key_format: RecordFormat = RecordFormat.TEXT
    value_format: RecordFormat = RecordFormat.AVRO
    schema_version: int | None = None
    """Version of the subject whose schema defines the columns; None selects the latest version."""
    tombstone_ttl: int = 30 * 24 * 3600
    """Retention of deletions in the ledger, in seconds."""
    missed_tombstones: MissedTombstones = MissedTombstones.RECONCILE
    unsequenced_records: UnsequencedRecords = UnsequencedRecords.REFUSE
    max_quarantined: int = 1000
    """Maximum number of unreadable records in a run. The batch that exceeds it is not written, and the run fails."""


class MaterializeJob(JobSettings, frozen=True):
    """Materialization of one topic as one table."""

    aggregate: str
    topic: str
    table: str
    kafka: Mapping[str, str]
    """librdkafka settings, including `bootstrap.servers`."""
    registry: HttpEndpoint
    """A schema registry with the Confluent REST API. File paths are paths on the driver."""
    target_name: str
    target: Target
    options: MaterializeOptions = MaterializeOptions()

    def __str__(self) -> str:
        return f"{self.topic} -> {self.target_name}.{self.table}"

    @property
    def requires_sequence(self) -> bool:
        """Whether a record without source_sequence is quarantined, as a record with a malformed one is."""
        return self.options.unsequenced_records is UnsequencedRecords.QUARANTINE

    @property
    def report_fields(self) -> dict[str, Any]:
        """The fields that identify the job in reports."""
        return {"aggregate": self.aggregate, "topic": self.topic, "target": self.target_name, "table": self.table}


@dataclass(frozen=True)
class TableProgress:
    """Progress of a table. It is stored in the target, in the same commit as the rows that it covers."""

    topic: str
    topic_id: str
    partition_epoch: int
    """Number of times that partitions were added to the topic since the table was created."""
    ordering: Ordering | None
    """None until the first record has been read."""
    offsets: Mapping[int, int]
    """For each partition, the offset at which the next run starts."""
    run: int
    """Sequence number of the commit; the first commit has number 1."""
    committed_at: datetime | None = None
    """Time after which all unread tombstones were written (see runs/missed_tombstones.py); None if it is unknown."""
    ledger_since: datetime | None = None
    """Kafka timestamp before which deletions were removed from the ledger; None if no deletions were removed."""
    unknown_schemas: tuple[int | str, ...] = ()
    """Ids and GUIDs of schemas that quarantined records refer to but that the registry did not have."""

    def to_json(self) -> dict[str, Any]:
        """Return the progress in the form that is stored in the target."""
        times = {name: time_json(getattr(self, name)) for name in ("committed_at", "ledger_since")}
        return {"layout": LAYOUT_VERSION, **asdict(self), "offsets": offsets_json(self.offsets), **times}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any], location: str) -> TableProgress:
        """Parse the result of `to_json`. Raises RefusedError for an unsupported layout version."""
        layout = int(stored["layout"])
        if layout != LAYOUT_VERSION:
            message = f"{location} has layout version {layout}; this version of outbox-kit reads {LAYOUT_VERSION}"
            hint = "run the version of outbox-kit that wrote the table, or rebuild the table with `outbox-rebuild`"
            raise RefusedError(message, hint)
        return msgspec.convert(stored, cls, strict=False, str_keys=True)


def offsets_json(offsets: Mapping[int, int]) -> dict[str, int]:
    """Return a JSON object of offsets by partition. Its keys are strings."""
    return {str(partition): offset for partition, offset in sorted(offsets.items())}


def time_json(time: datetime | None) -> str | None:
    """Return the time in UTC as ISO 8601 text; None if there is no time."""
    return None if time is None else time.astimezone(UTC).isoformat()


@dataclass(frozen=True)
class ReadRange:
    """Offsets to read from each partition, from `start` (inclusive) to `end` (exclusive)."""

    topic: str
    topic_id: str
    partition_epoch: int
    start: Mapping[int, int]
    end: Mapping[int, int]

    @property
    def offset_count(self) -> int:
        """Number of offsets in the range; compacted topics have fewer records."""
        return sum(end - self.start[partition] for partition, end in self.end.items())

    @property
    def is_empty(self) -> bool:
        """Whether the range has no offsets."""
        return all(self.start[partition] == end for partition, end in self.end.items())

    def starts_before(self, offsets: Mapping[int, int]) -> bool:
        """Return whether the range begins before `offsets` in any partition. A missing offset counts as 0."""
        return any(start < offsets.get(partition, 0) for partition, start in self.start.items())

    def progress_after(self, previous: TableProgress | None, ordering: Ordering | None) -> TableProgress:
        """Return the progress of the table after this range has been applied."""
        return TableProgress(
            topic=self.topic,
            topic_id=self.topic_id,
            partition_epoch=self.partition_epoch,
            ordering=ordering,
            offsets=dict(self.end),
            run=1 if previous is None else previous.run + 1,
            ledger_since=None if previous is None else previous.ledger_since,
            unknown_schemas=() if previous is None else previous.unknown_schemas,
        )


@dataclass(frozen=True)
class WriteCounts:
    """Numbers of rows that were written to the table and its companion tables."""

    upserts: int = 0
    deletes: int = 0
    tombstones: int = 0
    """Ledger entries that were added or updated."""
    quarantined: int = 0

    def plus(self, other: WriteCounts) -> WriteCounts:
        """Return the sums of these counts and `other`."""
        return WriteCounts(*(count + added for count, added in zip(astuple(self), astuple(other), strict=True)))


class Status(StrEnum):
    """Whether a materialization changed its table, or failed."""

    CHANGED = "changed"
    UNCHANGED = "unchanged"
    FAILED = "failed"


@dataclass(frozen=True)
class Outcome:
    """Result of one materialization, as printed with `--output json`."""

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
    transient: bool | None = None
    """Whether the failure is retryable; None if there was no failure."""

    def plus(self, later: Outcome) -> Outcome:
        """Return the combined outcome of this run and a later run of the same table."""
        sums = {name: getattr(self, name) + getattr(later, name) for name in _COUNT_FIELDS}
        return replace(self, **sums, seconds=round(self.seconds + later.seconds, 3), offsets_to=later.offsets_to)


_COUNT_FIELDS = ("records", "keys", "upserts", "deletes", "tombstones", "quarantined", "batches")
