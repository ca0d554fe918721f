"""Save a LatestState as a snapshot in a local SQLite file, which is replaced atomically and validated when read."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from outbox_events.latest_state.reader import TopicDescription
from outbox_events.latest_state.states import States

_LOG = logging.getLogger(__name__)
FORMAT = 1
"""Version of the file format. Files with another version are not read."""
_TABLES = """
create table snapshot (format integer not null, content text not null, checksum integer not null);
create table state (key blob, sequence blob, partition_epoch integer, offset integer, partition integer, value blob,
                    forget_at real);
"""
Row = tuple[bytes, bytes, int, int, int, bytes | None, float | None]


class UnusableSnapshotError(Exception):
    """The snapshot cannot be used. The message states the reason."""


@dataclass(frozen=True)
class Position:
    """Position in a topic. The snapshot contains all records before it."""

    topic: str
    topic_id: str
    offsets: dict[int, int]
    partition_epoch: int
    read_until: float
    """The snapshot contains all records written before this time, in seconds since 1970."""


def save(path: Path, position: Position, states: States) -> None:
    """Replace the snapshot atomically. If OSError or sqlite3.Error is raised, the earlier file remains."""
    temporary = path.with_name(f"{path.name}.tmp")  # may exist after a crash
    temporary.unlink(missing_ok=True)
    try:
        temporary.touch(mode=0o600)  # states may contain personal data
        with closing(sqlite3.connect(temporary)) as database:
            _write(database, position, states)
        _replace_durably(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _replace_durably(temporary: Path, path: Path) -> None:
    """Rename `temporary` to `path`. After a crash, `path` has either the old or the new content. Raises OSError."""
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def load(path: Path, states: States) -> Position:
    """Add the states of the snapshot to the empty `states`, and return the position of the snapshot.

    If the file is missing or damaged, raises UnusableSnapshotError. `states` might then be partially filled.
    """
    if not path.is_file():
        raise UnusableSnapshotError("the file does not exist")
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            return _read(database, states)
    except (sqlite3.Error, ValueError, TypeError, KeyError, OverflowError) as error:
        raise UnusableSnapshotError(f"the file is damaged ({type(error).__name__})") from None


def restore(path: Path, topic: str, description: TopicDescription, max_age_s: float, states: States) -> Position | None:
    """Fill the empty `states`, and return the snapshot's position, or None if the snapshot cannot be used."""
    try:
        position = load(path, states)
        _check(position, topic, description, max_age_s)
    except UnusableSnapshotError as error:
        _LOG.warning("reading topic %s from its beginning, because snapshot %s cannot be used: %s", topic, path, error)
        states.clear()
        return None
    return position


def _check(position: Position, topic: str, description: TopicDescription, max_age_s: float) -> None:
    """Raise UnusableSnapshotError if reading on from the position would not produce the latest states."""
    if position.topic != topic:
        raise UnusableSnapshotError(f"it is a snapshot of topic {position.topic}")
    if position.topic_id != description.id:
        raise UnusableSnapshotError("the topic was deleted and created again")
    if not description.contains(position.offsets):
        raise UnusableSnapshotError("its offsets are outside the current range of the topic")
    age_s = time.time() - position.read_until
    # Compaction removes old tombstones. If a tombstone was removed unread, its key would remain in the states.
    if not 0 <= age_s < max_age_s:
        raise UnusableSnapshotError(f"it is {age_s:.0f} s old, and tombstones are kept only for {max_age_s:.0f} s")


def _write(database: sqlite3.Connection, position: Position, states: States) -> None:
    # A journal is not needed, because the file is not visible before it is complete.
    database.executescript(f"pragma journal_mode = off; pragma synchronous = off; {_TABLES}")
    unordered = [key.hex() for key in states.unordered]
    content = json.dumps({"position": asdict(position), "unordered": unordered})
    checksum = Checksum(content)
    with database:
        rows = checksum.passed(_rows(states))
        database.executemany("insert into state values (?, ?, ?, ?, ?, ?, ?)", rows)
        database.execute("insert into snapshot values (?, ?, ?)", (FORMAT, content, checksum.value))


def _read(database: sqlite3.Connection, states: States) -> Position:
    found_format, content, expected = database.execute("select format, content, checksum from snapshot").fetchone()
    if found_format != FORMAT:
        raise UnusableSnapshotError(f"its format is {found_format}, not {FORMAT}")
    checksum = Checksum(content)
    rows = checksum.passed(database.execute("select * from state order by rowid"))
    for key, sequence, epoch, offset, partition, value, forget_at in rows:
        if value is None:
            states.tombstones[key] = (sequence, epoch, offset, partition, float(forget_at or 0))
        else:
            states.entries[key] = (sequence, epoch, offset, partition, value)
    if checksum.value != expected:
        raise UnusableSnapshotError("its checksum is wrong")
    stored: dict[str, Any] = json.loads(content)
    states.unordered.update(map(bytes.fromhex, stored["unordered"]))
    states.partition_epoch = stored["position"]["partition_epoch"]
    offsets = {int(number): int(offset) for number, offset in stored["position"].pop("offsets").items()}
    return Position(offsets=offsets, **stored["position"])


def _rows(states: States) -> Iterator[Row]:
    for key, (*version, value) in states.entries.items():
        yield (key, *version, value, None)  # type: ignore[misc]
    for key, (*version, forget_at) in states.tombstones.items():
        yield (key, *version, None, forget_at)  # type: ignore[misc]


class Checksum:
    """CRC-32 checksum of a text and of rows. It detects damage that SQLite does not detect."""

    def __init__(self, text: str) -> None:
        self.value = zlib.crc32(text.encode())

    def passed(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the rows, and add each to the checksum."""
        for row in rows:
            key, sequence, epoch, offset, partition, value, _ = row
            place = b"%b %b %d %d %d %d" % (key, sequence, epoch, offset, partition, value is None)
            self.value = zlib.crc32(value or b"", zlib.crc32(place, self.value))
            yield row
