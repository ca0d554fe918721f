"""Recognize handled events with Bloom filters, either instead of a table of processed events or in front of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Generic, cast

from confluent_kafka import Consumer, TopicPartition

from outbox_events.errors import ConfigurationError
from outbox_events.receiving.event import Event, Identify, header_id
from outbox_events.receiving.strategies import processed_table
from outbox_events.receiving.strategies.bloom.partition_filters import Missing, PartitionFilters, stable_hash
from outbox_events.receiving.strategies.database import Connected, Database
from outbox_events.receiving.strategies.position_table import Partition, PartitionStates
from outbox_events.receiving.strategies.processed_events import ProcessedEvents
from outbox_events.receiving.strategy import ConsumerOffsets, Work


class BloomFilter(ConsumerOffsets, Generic[Connected]):
    """Keeps a filter of the last `capacity` to 2 * `capacity` ids for each partition, and saves it in `folder`.

    Without `behind`, an event is a duplicate if the filter contains its id. At most the fraction `error_rate` of the
    new events is mistaken for duplicates and LOST. After a crash, events after the group's committed offset are applied
    again, as with any consumer. Events between the filter's saved position and that offset are received again only to
    complete the filter. Handlers receive the connection that `connect` returns, or None.

    With `behind`, the table of processed events decides what is a duplicate, so no event is lost or applied twice. Ids
    that the filter contains are looked up in the table, which takes about 20% less time than a claim and does not wait
    for locks. Other ids are claimed as they would be without a filter. The filter saves database time only for
    duplicates, and a batch with both duplicates and new events needs one more statement.

    Processes on several hosts need a shared folder. Otherwise the filter of a partition is empty after the partition
    moves to another host. Without `behind`, a zombie process can apply events again.
    """

    def __init__(
        self,
        folder: Path,
        *,
        capacity: int = 1_000_000,
        error_rate: float = 1e-6,
        connect: Callable[[], Connected] | None = None,
        behind: ProcessedEvents[Connected] | None = None,
        identify: Identify = header_id,
        save_interval_s: float = 60.0,
        missing: Missing = "start-empty",
    ) -> None:
        """Raises ConfigurationError for invalid or conflicting arguments.

        `missing` applies to a partition with committed offsets but no usable file: "start-empty" or "refuse".
        """
        if capacity < 1 or not 0 < error_rate < 1:
            raise ConfigurationError(f"capacity {capacity} must be > 0, and error_rate {error_rate} between 0 and 1")
        if behind is not None and connect is not None:
            raise ConfigurationError("the table in `behind` has its own connection; pass either `behind` or `connect`")
        self.filters = PartitionFilters(folder, capacity=capacity, error_rate=error_rate, missing=missing)
        self._behind = behind
        self._database = behind.database if behind else Database(connect) if connect else None
        self._identify = behind.identify if behind else identify
        self._save_interval_s = save_interval_s
        self._states: PartitionStates | None = None

    def bind(self, consumer: Consumer, settings: Mapping[str, Any]) -> None:
        """Use the filters of the consumer's group."""
        if self._behind is not None:
            self._behind.bind(consumer, settings)
        elif self._database is not None:
            self._database.bind(settings)
        self.filters.group = str(settings["group.id"])
        self._states = PartitionStates(consumer, settings)

    def assigned(self, partitions: list[TopicPartition]) -> list[TopicPartition] | None:
        """Restore the filters. Without a table, start at a filter's position if it precedes the committed offset.

        If `missing` is "refuse", raises RefusedError for a partition that has no usable file.
        """
        assert self._states is not None  # noqa: S101 - the receiver binds before it subscribes
        states = self._states.read(partitions)
        committed = self._states.committed(partitions)
        starts = []
        for source, state in states.items():
            saved = self.filters.open(source, state, committed.get(source)).next_offset
            # Before the log start offset, the client would apply auto.offset.reset, which can mean the end.
            known = [] if saved is None else [max(saved, state.first)]
            known += [committed[source]] if source in committed else []
            starts.append(TopicPartition(*source, min(known)) if known else TopicPartition(*source))
        return None if self._behind else starts

    def revoked(self, partitions: list[TopicPartition]) -> None:
        """Save and release the filters."""
        sources = [(partition.topic, partition.partition) for partition in partitions]
        self.filters.save(sources)
        self.filters.forget(sources)

    @contextmanager
    def transaction(self, events: Sequence[Event]) -> Iterator[Work[Connected]]:
        """Yield the connection and the new events. Add all ids to the filters after the commit."""
        ids = [self._identify(event) for event in events]
        hashes = [stable_hash(event_id) for event_id in ids]
        with self._open() as connection:
            hits = self._hits(events, hashes)
            duplicate = self._duplicates_in_table(connection, ids, hits) if self._behind else hits
            new = [event for event, is_duplicate in zip(events, duplicate, strict=True) if not is_duplicate]
            old = [event for event, is_duplicate in zip(events, duplicate, strict=True) if is_duplicate]
            yield Work(connection, new, old)
        for event, id_hash in zip(events, hashes, strict=True):
            kept = self.filters.get(event.source)
            if kept is not None:
                kept.learn(id_hash, event.offset)
        self.filters.save_due(self._save_interval_s)

    @contextmanager
    def recovery(self, event: Event) -> Iterator[Connected]:
        """Open a transaction. The event's id is not added to the filter, so that the event can be replayed.

        Raises OSError if the position after the event cannot be saved. Without this position, the event would be
        received again after a crash to complete the filter, and its replay would be treated as a duplicate.
        """
        with self._open() as connection:
            yield connection
        kept = self.filters.get(event.source)
        if kept is not None:
            kept.move(event.offset + 1)
            if self._behind is None:
                self.filters.write(event.source)

    def close(self) -> None:
        """Save the filters and close the database connection."""
        self.filters.save(self.filters)
        if self._database is not None:
            self._database.close()

    def _open(self) -> AbstractContextManager[Connected]:
        return self._database.transaction() if self._database else nullcontext(cast(Connected, None))

    def _hits(self, events: Sequence[Event], hashes: Sequence[int]) -> list[bool]:
        """Return, for each event, whether its id is in the filter or the group handled it before the assignment."""
        seen, hits = set[tuple[Partition, int]](), []
        for event, id_hash in zip(events, hashes, strict=True):
            kept, place = self.filters.get(event.source), (event.source, id_hash)
            is_known = kept is not None and (event.offset < kept.handled_before or id_hash in kept.generations)
            hits.append(is_known or place in seen)  # a batch can contain an event twice
            seen.add(place)
        return hits

    def _duplicates_in_table(self, connection: Connected, ids: Sequence[str], found: Sequence[bool]) -> list[bool]:
        """Look up the ids that the filter contains, and claim the others. Return whether each id is a duplicate."""
        assert self._behind is not None  # noqa: S101 - for the type checker
        group, table = self._behind.group, self._behind.table
        hits = {event_id for event_id, is_hit in zip(ids, found, strict=True) if is_hit}
        known = processed_table.known(connection, group, hits, table=table) if hits else set()  # type: ignore[arg-type]
        rest = set(ids) - known
        new = processed_table.claim(connection, group, rest, table=table) if rest else set()  # type: ignore[arg-type]
        duplicates = []
        for event_id in ids:
            duplicates.append(event_id not in new)
            new.discard(event_id)
        return duplicates
