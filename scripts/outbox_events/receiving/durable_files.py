"""Replace files atomically and durably."""

from __future__ import annotations

import os
from pathlib import Path


def replace_durably(temporary: Path, path: Path) -> None:
    """Rename `temporary` to `path`. After a crash, `path` has either the old or the new content. Raises OSError."""
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
