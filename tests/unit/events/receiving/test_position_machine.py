"""Random histories of a simulated broker. With stored positions, each record of the log has its effect exactly once."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from outbox_events import Event, ReceiverStoppedError
from outbox_events.errors import RefusedError
from outbox_events.receiving.partition_states import Partition, PartitionState
from outbox_events.receiving.strategies.position_table import (
    StoredPosition,
    divide,
    reach,
    refuse_change,
    refuse_start,
)

TABLE = "public.consumer_offset"
SOURCES = [("t", 0), ("t", 1)]
ID = "first-id"
consumers = st.integers(0, 2)
sources = st.sampled_from(SOURCES)


@dataclass
class Database:
    """Positions and effects, which are committed together."""

    positions: dict[Partition, StoredPosition] = field(
        default_factory=lambda: dict.fromkeys(SOURCES, StoredPosition(ID, 0))
    )
    effects: dict[Partition, list[int]] = field(default_factory=lambda: defaultdict(list))


@dataclass
class Consumer:
    """A consumer's read offset, its fetched records, and the position that it has stored. A zombie keeps all three."""

    reads: dict[Partition, int] = field(default_factory=dict)
    fetched: dict[Partition, list[Event]] = field(default_factory=lambda: defaultdict(list))
    known: dict[Partition, StoredPosition] = field(default_factory=dict)


class Positions(RuleBasedStateMachine):
    """Three consumers. Several can work on one partition, but all except the owner are zombies."""

    def __init__(self) -> None:
        super().__init__()
        self.log: dict[Partition, list[int]] = {source: [] for source in SOURCES}
        self.ends = dict.fromkeys(SOURCES, 0)
        self.first = dict.fromkeys(SOURCES, 0)
        self.database = Database()
        self.consumers = [Consumer() for _ in range(3)]

    @rule(source=sources, gaps=st.lists(st.integers(0, 2), min_size=1, max_size=6))
    def produce(self, source: Partition, gaps: list[int]) -> None:
        """Append records. Offsets have gaps for transaction markers and compacted records."""
        for gap in gaps:
            offset = self.ends[source] + gap
            self.log[source].append(offset)
            self.ends[source] = offset + 1

    @rule(number=consumers, source=sources)
    def assign(self, number: int, source: Partition) -> None:
        """Assign a partition to a new consumer or again. The previous owner is not notified, and becomes a zombie."""
        stored = self.database.positions[source]
        refuse_start(source, stored, PartitionState(ID, self.first[source], self.ends[source]), TABLE)
        consumer = self.consumers[number]
        consumer.known[source], consumer.reads[source] = stored, stored.next_offset
        consumer.fetched[source] = []

    @rule(number=consumers, source=sources, count=st.integers(1, 5))
    def fetch(self, number: int, source: Partition, count: int) -> None:
        consumer = self.consumers[number]
        if source in consumer.reads:
            records = [offset for offset in self.log[source] if offset >= consumer.reads[source]][:count]
            consumer.fetched[source] += [Event(*source, offset, None, None) for offset in records]
            consumer.reads[source] = records[-1] + 1 if records else consumer.reads[source]

    @rule(number=consumers, outcome=st.sampled_from(["commit", "commit", "rollback", "crash", "crash after commit"]))
    def apply(self, number: int, outcome: str) -> None:
        """Apply all fetched records in one transaction, or crash before or after its commit."""
        consumer = self.consumers[number]
        events = [event for source in SOURCES for event in consumer.fetched[source]]
        stored = {event.source: self.database.positions[event.source] for event in events}
        for source, position in stored.items():
            refuse_change(source, consumer.known.get(source), position, TABLE)
        division = divide(events, {source: position.next_offset for source, position in stored.items()})
        if "commit" in outcome:
            for event in division.new:
                self.database.effects[event.source].append(event.offset)
            for source, offset in division.positions.items():
                self.database.positions[source] = StoredPosition(ID, offset)
        if "crash" in outcome:
            self.consumers[number] = Consumer()
        elif outcome == "commit":
            consumer.known |= {source: StoredPosition(ID, offset) for source, offset in division.positions.items()}
            consumer.fetched.clear()

    @rule(source=sources, count=st.integers(1, 2))
    def end_transactions(self, source: Partition, count: int) -> None:
        """Append markers, which consumers do not receive."""
        self.ends[source] += count

    @rule(number=consumers, source=sources, is_committed=st.booleans())
    def reach_the_end(self, number: int, source: Partition, is_committed: bool) -> None:
        """Store the end of a partition after all fetched records were applied, or crash."""
        consumer = self.consumers[number]
        if consumer.fetched[source] or consumer.reads.get(source) is None:
            return
        if any(offset >= consumer.reads[source] for offset in self.log[source]):
            return
        stored = self.database.positions[source]
        refuse_change(source, consumer.known[source], stored, TABLE)
        division = reach({source: self.ends[source]}, consumer.known, {source: stored.next_offset})
        if is_committed:
            self.database.positions[source] = StoredPosition(ID, division.positions[source])
            consumer.known[source] = self.database.positions[source]
        else:
            self.consumers[number] = Consumer()

    @rule(source=sources)
    def delete_all_records(self, source: Partition) -> None:
        """Empty the partition if the end was stored. No later consumer may refuse this."""
        if self.database.positions[source].next_offset == self.ends[source]:
            self.first[source] = self.ends[source]

    @rule(number=consumers, source=sources, back=st.integers(1, 5))
    def replay(self, number: int, source: Partition, back: int) -> None:
        """Receive records again, as after a failed batch or a reset of the group's offsets."""
        consumer = self.consumers[number]
        if source in consumer.reads:
            consumer.reads[source] = max(self.first[source], consumer.reads[source] - back)
            self.fetch(number, source, back)

    @precondition(lambda self: any(self.log.values()))
    @rule(source=sources)
    def delete_handled_records(self, source: Partition) -> None:
        """Delete records that are before the position of every later consumer."""
        self.first[source] = self.database.positions[source].next_offset

    @rule(source=sources, lost=st.integers(1, 3))
    def refuses_lost_records(self, source: Partition, lost: int) -> None:
        """Lost records after the position, and a different topic, are refused in every state."""
        stored = self.database.positions[source]
        after = PartitionState(ID, stored.next_offset + lost, stored.next_offset + lost)
        for state in (after, PartitionState("second-id", 0, self.ends[source])):
            with pytest.raises(RefusedError, match=f"position {stored.next_offset}"):
                refuse_start(source, stored, state, TABLE)

    @rule(number=consumers, source=sources)
    def refuses_a_position_that_moved_back(self, number: int, source: Partition) -> None:
        known = self.consumers[number].known.get(source)
        if known is not None and known.next_offset:
            with pytest.raises(ReceiverStoppedError):
                refuse_change(source, known, StoredPosition(ID, known.next_offset - 1), TABLE)

    @invariant()
    def effects_are_a_prefix_of_the_log(self) -> None:
        for source, records in self.log.items():
            effects = self.database.effects[source]
            assert effects == records[: len(effects)]
            position = self.database.positions[source].next_offset
            assert len(effects) == sum(offset < position for offset in records)

    def teardown(self) -> None:
        """Check that one more consumer applies the rest of the log, whatever happened before."""
        for source in SOURCES:
            self.assign(0, source)
            self.fetch(0, source, len(self.log[source]) + 1)
        self.apply(0, "commit")
        assert {source: self.database.effects[source] for source in SOURCES} == self.log


TestPositions = Positions.TestCase
TestPositions.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)


def test_an_end_before_the_position_is_refused() -> None:
    with pytest.raises(RefusedError, match="lost records"):
        refuse_start(("t", 0), StoredPosition(ID, 8), PartitionState(ID, 0, 7), TABLE)


def test_clusters_without_topic_ids_compare_no_ids() -> None:
    refuse_start(("t", 0), StoredPosition("", 7), PartitionState(ID, 7, 7), TABLE)
    refuse_start(("t", 0), StoredPosition(ID, 7), PartitionState("", 0, 7), TABLE)


@pytest.mark.parametrize("known", [None, StoredPosition("second-id", 0)])
def test_unverified_positions_stop_the_receiver(known: StoredPosition | None) -> None:
    with pytest.raises(ReceiverStoppedError):
        refuse_change(("t", 0), known, StoredPosition(ID, 5), TABLE)
    with pytest.raises(ReceiverStoppedError):
        refuse_change(("t", 0), StoredPosition(ID, 5), None, TABLE)
