"""Store partition positions in the database, to apply each record once without a table of events."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Generic, Literal

from confluent_kafka import Consumer, TopicPartition

from outbox_events.errors import ConfigurationError
from outbox_events.receiving.event import Event
from outbox_events.receiving.partition_states import Partition, PartitionStates
from outbox_events.receiving.recoverers import AlreadyAppliedError
from outbox_events.receiving.strategies import position_table
from outbox_events.receiving.strategies.database import Connected, Database
from outbox_events.receiving.strategies.position_table import (
    DEFAULT_TABLE,
    Division,
    StoredPosition,
    divide,
    reach,
    refuse_change,
    refuse_start,
)
from outbox_events.receiving.strategy import BaseStrategy, Work


class StoredOffsets(BaseStrategy, Generic[Connected]):
    """Stores the position of each partition in the transaction of the effects, and starts at the stored positions.

    Each record takes effect once, even if a consumer that lost the partition is still working: that consumer waits for
    the lock on the position and then reads a newer position. An event that was produced twice has two records and takes
    effect twice. The receiver also commits the group's offsets so that tools can show the lag. These offsets determine
    only where a partition without a stored position starts.
    """

    def __init__(
        self,
        connect: Callable[[], Connected],
        group: str | None = None,
        *,
        table: str = DEFAULT_TABLE,
        start: Literal["earliest", "latest"] = "earliest",
    ) -> None:
        """`connect` returns a psycopg Connection or a SQLAlchemy Session.

        `start` applies to a partition that has neither a stored position nor a committed offset. Raises
        ConfigurationError if `start` has any other value.
        """
        if start not in ("earliest", "latest"):
            raise ConfigurationError(f"start must be earliest or latest, not {start!r}")
        self.database: Database[Connected] = Database(connect)
        self.group = self._given_group = group or ""
        self.table = table
        self._start = start
        # Kept after a partition is revoked, because the rest of its batch might still be applied.
        self._known: dict[Partition, StoredPosition] = {}

    @property
    def settings(self) -> Mapping[str, Any]:
        """Disable the offset reset, which would skip or repeat records if retention overtakes the consumer."""
        return {"auto.offset.reset": "error"}

    def bind(self, consumer: Consumer, settings: Mapping[str, Any]) -> None:
        """Use the consumer's group, unless a group was passed, and check the database."""
        super().bind(consumer, settings)
        self.group = self._given_group or str(settings["group.id"])
        self._states = PartitionStates(consumer, settings)

    def assigned(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the stored positions. Store positions for new partitions.

        Raises RefusedError, which names the next step, if a partition cannot be read from its stored position.
        """
        states = self._states.read(partitions)
        committed = self._states.committed(partitions)
        starts = {
            source: StoredPosition(
                state.topic_id, committed.get(source, state.first if self._start == "earliest" else state.end)
            )
            for source, state in states.items()
        }
        with self.database.transaction() as connection:
            position_table.insert_missing(connection, self.group, starts, self.table)  # type: ignore[arg-type]
            stored = position_table.lock(connection, self.group, states, self.table)  # type: ignore[arg-type]
        for source, state in states.items():  # after the commit, because the next step changes the stored row
            refuse_start(source, stored[source], state, self.table)
        self._known |= stored
        return [TopicPartition(*source, position.next_offset) for source, position in stored.items()]

    def reached(self, ends: Mapping[Partition, int]) -> None:
        """Advance the positions to the ends, unless another consumer has moved them."""
        later = {source: end for source, end in ends.items() if self._known[source].next_offset < end}
        if later:
            with self.database.transaction() as connection:
                division = reach(later, self._known, self._locked(connection, later))
                self._advance(connection, division)
            self._remember(division)

    @contextmanager
    def transaction(self, events: Sequence[Event]) -> Iterator[Work[Connected]]:
        """Lock the positions. Yield the connection and the events after these positions. Then advance the positions.

        If a handler commits, the positions are therefore still before its event.
        """
        with self.database.transaction() as connection:
            division = self._lock(connection, events)
            yield Work(connection, division.new, division.duplicates)
            self._advance(connection, division)
        self._remember(division)

    @contextmanager
    def recovery(self, event: Event) -> Iterator[Connected]:
        """Open a transaction that advances the position past the event.

        Raises AlreadyAppliedError if the position is already after the event. Either another consumer applied the
        event, or an earlier recovery was committed but its response was lost.
        """
        with self.database.transaction() as connection:
            division = self._lock(connection, [event])
            if not division.new:
                raise AlreadyAppliedError(f"the position of the group is after event {event.place}")
            yield connection
            self._advance(connection, division)
        self._remember(division)

    def _lock(self, connection: Connected, events: Sequence[Event]) -> Division:
        return divide(events, self._locked(connection, {event.source for event in events}))

    def _locked(self, connection: Connected, sources: Collection[Partition]) -> dict[Partition, int]:
        """Lock and return the positions. Raises ReceiverStoppedError if something other than a consumer changed one."""
        stored = position_table.lock(connection, self.group, sources, self.table)  # type: ignore[arg-type]
        for source in sources:
            refuse_change(source, self._known.get(source), stored.get(source), self.table)
        return {source: position.next_offset for source, position in stored.items()}

    def _advance(self, connection: Connected, division: Division) -> None:
        moved = {source: end for source, end in division.positions.items() if end != division.before[source]}
        if moved:
            position_table.advance(connection, self.group, moved, self.table)  # type: ignore[arg-type]

    def _remember(self, division: Division) -> None:
        for source, offset in division.positions.items():
            self._known[source] = replace(self._known[source], next_offset=offset)
