"""Filters of the assigned partitions: restored when a partition is assigned, saved from time to time."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from outbox_events.errors import RefusedError
from outbox_events.receiving.strategies.bloom import filter_files
from outbox_events.receiving.strategies.bloom.bloom_generations import Generations
from outbox_events.receiving.strategies.bloom.filter_files import SavedFilter
from outbox_events.receiving.strategies.positions import Partition, PartitionState

log = logging.getLogger("outbox_events.receiving")
Missing = Literal["start-empty", "refuse"]


@dataclass
class PartitionFilter:
    """The filter of a partition. It contains the ids of the events before `next_offset`, as far as it recognizes."""

    topic_id: str
    generations: Generations
    next_offset: int | None = None
    """None until an event of the partition was handled."""
    handled_before: int = 0
    """Offset before which the group had handled all events at the assignment, also those not in the filter."""
    is_changed: bool = False

    def learn(self, id_hash: int, offset: int) -> None:
        """Add the id of a handled event, given by its `stable_hash`."""
        if id_hash not in self.generations:
            self.generations.add(id_hash)
        self.move(offset + 1)

    def move(self, offset: int) -> None:
        """Set the position. It moves backwards if events are received again on purpose."""
        self.next_offset = offset
        self.is_changed = True


class PartitionFilters:
    """Filters by partition, and their files in a folder."""

    def __init__(self, folder: Path, *, capacity: int, error_rate: float, missing: Missing) -> None:
        self.group = ""  # of the consumer, which is known only when the receiver binds the strategy
        self._folder = folder
        self._capacity = capacity
        self._error_rate = error_rate
        self._missing = missing
        self._filters: dict[Partition, PartitionFilter] = {}
        self._saved_at = time.monotonic()

    def get(self, source: Partition) -> PartitionFilter | None:
        """Return the filter of an assigned partition; None if it was revoked."""
        return self._filters.get(source)

    def open(self, source: Partition, state: PartitionState, committed: int | None) -> PartitionFilter:
        """Restore the filter of an assigned partition, or begin an empty one.

        Raises RefusedError if the policy is "refuse" and the group has handled events that no filter contains.
        """
        path = filter_files.path_of(self._folder, self.group, source)
        opened = PartitionFilter(state.topic_id, Generations(self._capacity, self._error_rate))
        opened.handled_before = committed or 0
        reason = self._restore(path, opened)
        if reason and (committed is not None or path.exists()):
            text = f"topic {source[0]}, partition {source[1]}: no usable filter in {path}: {reason}"
            if self._missing == "refuse":
                raise RefusedError(
                    text, 'restore the file, or pass missing="start-empty" to recognize later events only'
                )
            log.warning("%s; starting with an empty filter", text)
        # A partition that has lost its last records will have new ones at the offsets after its end.
        opened.handled_before = min(opened.handled_before, state.end)
        self._filters[source] = opened
        if opened.next_offset is not None and opened.next_offset < opened.handled_before:
            # The consumer goes back to complete the filter, and with it the group's offset: a crash must not lose it.
            opened.is_changed = True
            self.save([source])
        return opened

    def _restore(self, path: Path, opened: PartitionFilter) -> str:
        """Load the file into the filter; return the reason why it cannot be used, otherwise an empty text."""
        try:
            saved = filter_files.read(path)
            if saved is None:
                return "the file does not exist"
            if saved.topic_id and opened.topic_id and saved.topic_id != opened.topic_id:
                return f"it belongs to topic id {saved.topic_id}, and the topic was created again as {opened.topic_id}"
            opened.generations.load(saved.newer, saved.older, saved.count, saved.limit)
        except ValueError as error:
            return str(error)
        opened.next_offset = saved.next_offset
        opened.handled_before = max(opened.handled_before, saved.handled_before)
        return ""

    def save_due(self, interval_s: float) -> None:
        """Save the changed filters if the last time is `interval_s` ago."""
        if time.monotonic() - self._saved_at >= interval_s:
            self.save(self)

    def save(self, sources: Iterable[Partition]) -> None:
        """Save the changed filters of these partitions.

        An error is logged: the effects are committed, and the previous file is as good as after a crash.
        """
        for source in sources:
            try:
                self.write(source)
            except OSError as error:
                path = filter_files.path_of(self._folder, self.group, source)
                log.error("cannot save the filter %s: %s", path, error.strerror)
        self._saved_at = time.monotonic()

    def write(self, source: Partition) -> None:
        """Save the filter of a partition if it has changed. Raises OSError."""
        kept = self._filters.get(source)
        if kept is not None and kept.is_changed and kept.next_offset is not None:
            handled_before = kept.handled_before if kept.handled_before > kept.next_offset else 0
            place, filters = (kept.topic_id, kept.next_offset, handled_before), kept.generations
            saved = SavedFilter(*place, filters.count, filters.limit, *filters.save())
            filter_files.write(filter_files.path_of(self._folder, self.group, source), saved)
            kept.is_changed = False

    def forget(self, sources: Iterable[Partition]) -> None:
        """Release the filters of revoked partitions."""
        for source in sources:
            self._filters.pop(source, None)

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._filters))
