"""What the steps of a run hand to one another. Plain data: no Spark, no network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from outbox_spark.errors import RefusedError

LAYOUT_VERSION = 1
"""Version of what is stored beside the rows (offsets, tombstone ledger, quarantine)."""


class Ordering(StrEnum):
    """What decides which record of a key is newest; one kind per table, never both."""

    SEQUENCE = "sequence"
    """By (source_sequence header, partition epoch, offset): topics of outbox-kit."""

    OFFSET = "offset"
    """By (partition epoch, offset): topics whose records carry no source_sequence."""


@dataclass(frozen=True)
class Registry:
    """A registry with the Confluent REST API."""

    url: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class PostgresTarget:
    """A PostgreSQL schema that holds the tables."""

    host: str
    port: int
    database: str
    user: str
    password: str = field(repr=False)
    schema: str = "public"


@dataclass(frozen=True)
class DeltaTarget:
    """A folder or object store prefix that holds the tables, one folder each."""

    path: str


Target = PostgresTarget | DeltaTarget


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

    def to_json(self) -> dict[str, Any]:
        """As stored in the target. JSON objects have text keys, so partitions become text."""
        return {
            "layout": LAYOUT_VERSION,
            "topic": self.topic,
            "topic_id": self.topic_id,
            "partition_epoch": self.partition_epoch,
            "ordering": self.ordering,
            "offsets": {str(partition): offset for partition, offset in sorted(self.offsets.items())},
            "run": self.run,
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
        )


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
        )


@dataclass(frozen=True)
class Written:
    """What one commit changed in the target, in rows."""

    upserts: int
    deletes: int
    tombstones: int
    """Ledger entries that were new or moved forward."""
    quarantined: int


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
    seconds: float = 0.0
    offsets_from: Mapping[int, int] = field(default_factory=dict)
    offsets_to: Mapping[int, int] = field(default_factory=dict)
    error: str | None = None
    hint: str | None = None
