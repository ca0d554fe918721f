"""Files of Bloom filters: one per partition, replaced atomically, with a checksum and the position of the filter."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

from outbox_events.receiving.durable_files import replace_durably
from outbox_events.receiving.strategies.positions import Partition

MAGIC = b"outbox-bloom-1\n"
DIGEST_BYTES = 32


class InvalidFilterError(ValueError):
    """A file contains no usable filter."""


@dataclass(frozen=True)
class SavedFilter:
    """Filters of a partition. They contain the ids of the events before `next_offset`."""

    topic_id: str
    next_offset: int
    handled_before: int
    """Offset before which the group has handled all events, if that is more than the filters contain; otherwise 0."""
    count: int
    limit: int
    newer: bytes
    older: bytes


def path_of(folder: Path, group: str, source: Partition) -> Path:
    """Return the path of a partition's file."""
    return folder / f"{quote(group, safe='')}+{source[0]}+{source[1]}.bloom"


def write(path: Path, saved: SavedFilter) -> None:
    """Replace the file: after a crash it has the old or the new content. Raises OSError."""
    header = asdict(saved) | {"newer": len(saved.newer), "older": len(saved.older)}
    body = json.dumps(header).encode() + b"\n" + saved.newer + saved.older
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary_file = path.with_suffix(f".{uuid4().hex}.partial")  # processes of several hosts can share the folder
    try:
        temporary_file.write_bytes(MAGIC + blake2b(body, digest_size=DIGEST_BYTES).digest() + body)
        replace_durably(temporary_file, path)
    finally:
        temporary_file.unlink(missing_ok=True)


def read(path: Path) -> SavedFilter | None:
    """Return the content of a file; None without a file. Raises InvalidFilterError."""
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
