"""Recognize handled events with Bloom filters that are stored in the transaction of the effects."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from confluent_kafka import TopicPartition

from outbox_events.errors import ConfigurationError
from outbox_events.receiving.event import Event, Identify, header_id
from outbox_events.receiving.event_ids import EventIds
from outbox_events.receiving.partition_states import Partition
from outbox_events.receiving.strategies import position_table
from outbox_events.receiving.strategies.bloom import filter_table
from outbox_events.receiving.strategies.bloom.generations import Generations, hash_of
from outbox_events.receiving.strategies.database import Connected
from outbox_events.receiving.strategies.position_table import Division
from outbox_events.receiving.strategies.stored_offsets import StoredOffsets
from outbox_events.receiving.strategy import Work


@dataclass
class _Filter:
    """Filter of a partition. It contains the ids of the most recent events before `next_offset`."""

    next_offset: int
    generations: Generations


class BloomFilter(StoredOffsets[Connected]):
    """Keeps a filter of the last `capacity` to 2 * `capacity` ids for each partition, besides the position.

    Filter, position and effects are committed together, so a crash or another consumer repeats nothing. An event that
    was produced twice, in one partition, has its effect once. At most the fraction `error_rate` of the new events is
    mistaken for duplicates and LOST; `error_rates` returns the fraction at present.
    """

    def __init__(
        self,
        connect: Callable[[], Connected],
        group: str | None = None,
        *,
        table: str = position_table.DEFAULT_TABLE,
        filters: str = filter_table.DEFAULT_TABLE,
        start: Literal["earliest", "latest"] = "earliest",
        capacity: int = 100_000,
        error_rate: float = 1e-6,
        identify: Identify = header_id,
    ) -> None:
        """`table` contains the positions, and `filters` the filters. The other arguments are those of StoredOffsets.

        Raises ConfigurationError for invalid arguments.
        """
        if capacity < 1 or not 0 < error_rate < 1:
            raise ConfigurationError(f"capacity {capacity} must be > 0, and error_rate {error_rate} between 0 and 1")
        super().__init__(connect, group, table=table, start=start)
        self._table_of_filters = filters
        self._capacity = capacity
        self._error_rate = error_rate
        self._ids = EventIds(identify)
        self._filters: dict[Partition, _Filter] = {}

    def error_rates(self) -> dict[Partition, float]:
        """Return the probability that a new event is lost, for each partition whose filter is in memory.

        Call it on the thread of the receiver.
        """
        return {source: kept.generations.measured_error_rate() for source, kept in self._filters.items()}

    def revoked(self, partitions: list[TopicPartition]) -> None:
        """Release the memory of the filters."""
        for partition in partitions:
            self._filters.pop((partition.topic, partition.partition), None)

    @contextmanager
    def transaction(self, events: Sequence[Event]) -> Iterator[Work[Connected]]:
        """Lock the positions, yield the connection and the events that the filters lack, then store both."""
        with self.database.transaction() as connection:
            division = self._lock(connection, events)
            self._load(connection, division.before)
            new, repeated, hashes = self._select(division.new)
            yield Work(connection, new, [*division.duplicates, *repeated])
            self._store(connection, hashes)
            self._advance(connection, division)
        for source, added in hashes.items():
            self._filters[source].generations.add(added)
        self._remember(division)

    def _load(self, connection: Connected, positions: Mapping[Partition, int]) -> None:
        """Load the filters that are not in memory, or that another consumer has changed since they were loaded."""
        for source, position in positions.items():
            kept = self._filters.get(source)
            if kept is None or kept.next_offset != position:
                self._filters[source] = _Filter(position, self._read(connection, source))

    def _read(self, connection: Connected, source: Partition) -> Generations:
        generations = Generations(self._capacity, self._error_rate)
        saved, hashes = filter_table.load(connection, self.group, source, self._table_of_filters)  # type: ignore[arg-type]
        generations.restore(saved, hashes)
        return generations

    def _select(self, events: Sequence[Event]) -> tuple[list[Event], list[Event], dict[Partition, set[bytes]]]:
        """Return the new events, the events whose ids are known, and the hashes of the new ids by partition."""
        new, repeated, hashes = list[Event](), list[Event](), dict[Partition, set[bytes]]()
        for event, event_id in zip(events, self._ids.of(events), strict=True):
            id_hash, added = hash_of(event_id), hashes.setdefault(event.source, set())
            is_known = id_hash in added or id_hash in self._filters[event.source].generations
            (repeated if is_known else new).append(event)
            if not is_known:
                added.add(id_hash)
        return new, repeated, hashes

    def _store(self, connection: Connected, hashes: Mapping[Partition, Collection[bytes]]) -> None:
        """Replace the rows of full filters, then append the new hashes."""
        for source, added in hashes.items():
            full = self._filters[source].generations.full_filter(len(added))
            if full is not None:
                filter_table.replace(connection, self.group, source, full, self._table_of_filters)  # type: ignore[arg-type]
        joined = {source: b"".join(added) for source, added in hashes.items() if added}
        if joined:
            filter_table.append(connection, self.group, joined, self._table_of_filters)  # type: ignore[arg-type]

    def _remember(self, division: Division) -> None:
        super()._remember(division)
        for source, offset in division.positions.items():
            kept = self._filters.get(source)
            if kept is not None and kept.next_offset == division.before[source]:  # otherwise it will be loaded again
                kept.next_offset = offset
