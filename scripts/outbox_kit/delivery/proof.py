"""Prove from the topics' records that outbox rows were delivered. The slot must have confirmed the rows first.

The delivery of a row is proven if one of these conditions holds:
- a record on the topic of its type has the event id of the row;
- a record on this topic has the event id of a later row of the aggregate; compaction may have removed the older record;
- the newest record of its key was committed after the WAL position of the snapshot, so it is newer than all rows;
- a dead letter has the event id of the row.

A later row has a higher `seq`, and its transaction did not begin before the earlier row's transaction. `seq` increases
in the order of the writers, because each holds the aggregate's lock. Comparing transactions detects sequence restarts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from outbox_events.contract.source_sequence import Version, WalPosition
from outbox_kit.dead_letters.dead_letter import DeadLetter
from outbox_kit.delivery.outbox_rows import StoredRow
from outbox_kit.deployment import Deployment
from outbox_kit.kafka.latest_records import READ_TIMEOUT_S, LatestRecord, LatestRecords
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres.client import Connection, Row


@dataclass(frozen=True)
class Proof:
    """Records on the topic of one aggregate type. `dead_letters` is the result of first_versions().

    A record at a position from `after` to `upto` is newer than all rows. A record beyond `upto` is from another source.
    """

    latest: dict[str, LatestRecord]
    overwritten: set[str]
    event_ids: set[str]
    dead_letters: Mapping[str, Version]
    after: WalPosition
    upto: WalPosition

    def proven(self, rows: Sequence[StoredRow]) -> list[bool]:
        """Return whether each of `rows` is proven. The rows must belong to one aggregate and be in insertion order."""
        key = rows[0].key
        record = None if key in self.overwritten else self.latest.get(key)
        if record and self.after.precedes(record.version) and not self.upto.is_exceeded_by(record.version):
            return [True] * len(rows)
        event_ids = self.event_ids if record else set()
        return [*reversed(list(self._proven_by_ids(rows, event_ids)))]

    def _proven_by_ids(self, rows: Sequence[StoredRow], event_ids: set[str]) -> Iterator[bool]:
        """Yield, for each row from last to first, whether the event of this row or of a later row is on a topic."""
        age_of_delivered: int | None = None
        for row in reversed(rows):
            if row.id in event_ids:
                age_of_delivered = row.age if age_of_delivered is None else min(age_of_delivered, row.age)
            is_delivered = age_of_delivered is not None and age_of_delivered <= row.age
            yield is_delivered or row.id in self.dead_letters

    def is_tombstone(self, row: StoredRow) -> bool:
        """Return whether the newest record of the row's key is a tombstone that has the row's event id."""
        record = self.latest.get(row.key)
        return record is not None and record.event_id == row.id and not record.has_state


@dataclass
class ProofReader:
    """Reads the proof of one aggregate type at a time. Only the last proof is retained, to limit memory usage.

    `position` is a WAL position that the slot has confirmed and that is after the commits of all rows.
    """

    deployment: Deployment
    connection: Connection
    position: int
    epoch: int

    def __post_init__(self) -> None:
        dead_letters = self.deployment.dead_letters().read(list_all=True, seconds=READ_TIMEOUT_S)
        self._dead_letters = first_versions(dead_letters)
        self._current: tuple[str, Proof] | None = None

    def of_type(self, aggregate_type: str) -> Proof:
        """Return the proof of an aggregate type. Raises UnreachableError, RejectedError, WaitTimeoutError."""
        if self._current is None or self._current[0] != aggregate_type:
            self._current = None
            self._current = aggregate_type, self._read(aggregate_type)
        return self._current[1]

    def _read(self, aggregate_type: str) -> Proof:
        pipeline, event_ids = self.deployment.pipeline, set[str]()
        topic = LatestRecords(self.deployment.kafka, pipeline.topic_of(aggregate_type), event_ids=event_ids)
        if aggregate_type in pipeline.routed:  # rows of other types are dead letters
            topic.read()
        # The current position is read after the topic, so that no record of this source exceeds it.
        end = postgres_client.read_insert_position(self.connection) or self.position
        after, upto = WalPosition(self.epoch, self.position), WalPosition(self.epoch, end)
        return Proof(topic.by_key, set(topic.overwritten), event_ids, self._dead_letters, after, upto)


def is_confirmed(row: Row, record: LatestRecord | None, position: WalPosition | None) -> bool:
    """Return whether the latest record of a key proves the newest outbox row. `row` comes from latest_events().

    `position` is a WAL position after the commit of the row; None if such a position is unknown.
    """
    if record is None:
        return bool(row["deleted"])
    return record.event_id in row["event_ids"] or (position is not None and position.precedes(record.version))


def first_versions(dead_letters: Iterable[DeadLetter]) -> dict[str, Version]:
    """Map each event id in the dead letters to the event's first version. A replay gives the event a higher one."""
    result: dict[str, Version] = {}
    for dead_letter in dead_letters:
        result[dead_letter.event_id] = min(dead_letter.version, result.get(dead_letter.event_id, dead_letter.version))
    return result


def is_superseded(dead_letter: DeadLetter, record: LatestRecord | None, first: Mapping[str, Version]) -> bool:
    """Return whether `record`, the newest record of the key, is the dead letter's event or a newer event."""
    if record is None:
        return False
    if record.event_id == dead_letter.event_id:
        return True
    return first.get(record.event_id, record.version) > first.get(dead_letter.event_id, dead_letter.version)
