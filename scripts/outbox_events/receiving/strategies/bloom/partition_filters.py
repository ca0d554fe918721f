"""Keep a filter of event ids for each assigned partition. It is restored on assignment and saved periodically.

A filter has two generations. When the newer generation is full, the older one is dropped. Each partition has a file
that contains the filter, its position and a checksum. The file is replaced atomically.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from hashlib import blake2b
from operator import index
from pathlib import Path
from typing import Literal
from urllib.parse import quote
from uuid import uuid4

from rbloom import Bloom

from outbox_events.errors import RefusedError
from outbox_events.receiving.durable_files import replace_durably
from outbox_events.receiving.partition_states import Partition, PartitionState

BYTES = 16
MAGIC = b"outbox-bloom-1\n"
DIGEST_BYTES = 32
log = logging.getLogger("outbox_events.receiving")
Missing = Literal["start-empty", "refuse"]


def stable_hash(event_id: str) -> int:
    """Return a signed 128-bit hash. Unlike Python's `hash`, it is the same in every process."""
    return int.from_bytes(blake2b(event_id.encode(), digest_size=BYTES).digest(), "big", signed=True)


class Generations:
    """Recognizes the last `capacity` to 2 * `capacity` ids by their `stable_hash`.

    If both filters are full, an id that was not added is recognized with a probability of at most `error_rate`. The
    filters need 2 * capacity * 1.44 * log2(2 / error_rate) bits of memory, which is 7.5 MB for a capacity of a million
    and an error rate of 1e-6.
    """

    def __init__(self, capacity: int, error_rate: float) -> None:
        """Create empty filters. `error_rate` is between 0 and 1."""
        self.capacity = capacity
        self.error_rate = error_rate
        self.count = 0
        """Number of ids in the newer filter."""
        self.limit = capacity
        """Number of ids that the newer filter was created to hold."""
        self.newer = self._empty()
        self.older: Bloom | None = None

    def __contains__(self, id_hash: int) -> bool:
        return id_hash in self.newer or (self.older is not None and id_hash in self.older)

    def add(self, id_hash: int) -> None:
        """Add an id. If the newer filter is full, begin a new generation first."""
        if self.count >= self.limit:
            self.older, self.newer, self.count, self.limit = self.newer, self._empty(), 0, self.capacity
        self.newer.add(id_hash)
        self.count += 1

    def save(self) -> tuple[bytes, bytes]:
        """Return the newer and the older filter as bytes. If there is no older filter, its bytes are empty."""
        return self.newer.save_bytes(), self.older.save_bytes() if self.older is not None else b""

    def load(self, newer: bytes, older: bytes, count: int, limit: int) -> None:
        """Continue with saved filters. They keep their capacity and error rate until they are dropped.

        Raises ValueError.
        """
        restored = Bloom.load_bytes(newer, index)
        self.older = Bloom.load_bytes(older, index) if older else None
        self.newer, self.count, self.limit = restored, count, limit

    def _empty(self) -> Bloom:
        return Bloom(self.capacity, self.error_rate / 2, index)


class InvalidFilterError(ValueError):
    """A file does not contain a usable filter."""


@dataclass(frozen=True)
class SavedFilter:
    """Saved filters of a partition. They contain the ids of the events before `next_offset`."""

    topic_id: str
    next_offset: int
    handled_before: int
    """Offset before which the group has handled all events, if it is greater than `next_offset`, else 0."""
    count: int
    limit: int
    newer: bytes
    older: bytes


def filter_path(folder: Path, group: str, source: Partition) -> Path:
    """Return the path of a partition's file."""
    return folder / f"{quote(group, safe='')}+{source[0]}+{source[1]}.bloom"


def write_filter(path: Path, saved: SavedFilter) -> None:
    """Replace the file. After a crash, it has either the old or the new content. Raises OSError."""
    header = asdict(saved) | {"newer": len(saved.newer), "older": len(saved.older)}
    body = json.dumps(header).encode() + b"\n" + saved.newer + saved.older
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary_file = path.with_suffix(f".{uuid4().hex}.partial")  # several hosts can share the folder
    try:
        temporary_file.write_bytes(MAGIC + blake2b(body, digest_size=DIGEST_BYTES).digest() + body)
        replace_durably(temporary_file, path)
    finally:
        temporary_file.unlink(missing_ok=True)


def read_filter(path: Path) -> SavedFilter | None:
    """Return the content of a file, or None if it does not exist. Raises InvalidFilterError."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    start = len(MAGIC) + DIGEST_BYTES
    body = content[start:]
    if not content.startswith(MAGIC) or blake2b(body, digest_size=DIGEST_BYTES).digest() != content[len(MAGIC) : start]:
        raise InvalidFilterError("its checksum is wrong")
    line, _, filters = body.partition(b"\n")
    header = json.loads(line)
    newer, older = filters[: header["newer"]], filters[header["newer"] :]
    return SavedFilter(**header | {"newer": newer, "older": older})


@dataclass
class PartitionFilter:
    """Filter of a partition. It contains the ids of the most recent events before `next_offset`."""

    topic_id: str
    generations: Generations
    next_offset: int | None = None
    """None until an event of the partition has been handled."""
    handled_before: int = 0
    """At the assignment, the group had handled all events before this offset, even if the filter lacks their ids."""
    is_changed: bool = False

    def learn(self, id_hash: int, offset: int) -> None:
        """Add the `stable_hash` of a handled event's id."""
        if id_hash not in self.generations:
            self.generations.add(id_hash)
        self.move(offset + 1)

    def move(self, offset: int) -> None:
        """Set the position. The position can move backwards if events are received again on purpose."""
        self.next_offset = offset
        self.is_changed = True


class PartitionFilters:
    """Manages the filters of the assigned partitions, and their files in a folder."""

    def __init__(self, folder: Path, *, capacity: int, error_rate: float, missing: Missing) -> None:
        self.group = ""  # consumer group, known when the receiver binds the strategy
        self._folder = folder
        self._capacity = capacity
        self._error_rate = error_rate
        self._missing = missing
        self._filters: dict[Partition, PartitionFilter] = {}
        self._saved_at = time.monotonic()

    def get(self, source: Partition) -> PartitionFilter | None:
        """Return the filter of an assigned partition, or None if the partition was revoked."""
        return self._filters.get(source)

    def open(self, source: Partition, state: PartitionState, committed: int | None) -> PartitionFilter:
        """Restore the filter of an assigned partition, or create an empty filter.

        Raises RefusedError if `missing` is "refuse", and the group has handled events but has no usable filter file.
        """
        path = filter_path(self._folder, self.group, source)
        opened = PartitionFilter(state.topic_id, Generations(self._capacity, self._error_rate))
        opened.handled_before = committed or 0
        reason = self._restore(path, opened)
        if reason and (committed is not None or path.exists()):
            text = f"topic {source[0]}, partition {source[1]}: no usable filter in {path}: {reason}"
            if self._missing == "refuse":
                raise RefusedError(
                    text, 'restore the file, or pass missing="start-empty" to recognize only later events'
                )
            log.warning("%s; starting with an empty filter", text)
        # If a partition has lost its last records, new records will reuse the offsets after its end.
        opened.handled_before = min(opened.handled_before, state.end)
        self._filters[source] = opened
        if opened.next_offset is not None and opened.next_offset < opened.handled_before:
            # Save `handled_before` now, because the group's offset moves back until the filter is complete.
            opened.is_changed = True
            self.save([source])
        return opened

    def _restore(self, path: Path, opened: PartitionFilter) -> str:
        """Load the file into the filter. Return the reason why it cannot be used, or an empty text."""
        try:
            saved = read_filter(path)
            if saved is None:
                return "the file does not exist"
            if saved.topic_id and opened.topic_id and saved.topic_id != opened.topic_id:
                return f"it belongs to topic id {saved.topic_id}, but the topic was created again as {opened.topic_id}"
            opened.generations.load(saved.newer, saved.older, saved.count, saved.limit)
        except ValueError as error:
            return str(error)
        opened.next_offset = saved.next_offset
        opened.handled_before = max(opened.handled_before, saved.handled_before)
        return ""

    def save_due(self, interval_s: float) -> None:
        """Save the changed filters if the last save was at least `interval_s` ago."""
        if time.monotonic() - self._saved_at >= interval_s:
            self.save(self)

    def save(self, sources: Iterable[Partition]) -> None:
        """Save the changed filters of these partitions.

        Errors are only logged, because the effects are committed and the previous file is still usable.
        """
        for source in sources:
            try:
                self.write(source)
            except OSError as error:
                path = filter_path(self._folder, self.group, source)
                log.error("cannot save the filter %s: %s", path, error.strerror)
        self._saved_at = time.monotonic()

    def write(self, source: Partition) -> None:
        """Save the filter of a partition if the filter has changed. Raises OSError."""
        kept = self._filters.get(source)
        if kept is not None and kept.is_changed and kept.next_offset is not None:
            handled_before = kept.handled_before if kept.handled_before > kept.next_offset else 0
            place, filters = (kept.topic_id, kept.next_offset, handled_before), kept.generations
            saved = SavedFilter(*place, filters.count, filters.limit, *filters.save())
            write_filter(filter_path(self._folder, self.group, source), saved)
            kept.is_changed = False

    def forget(self, sources: Iterable[Partition]) -> None:
        """Release the filters of revoked partitions."""
        for source in sources:
            self._filters.pop(source, None)

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._filters))
