"""Replace files atomically and durably."""

from __future__ import annotations

import os
from pathlib import Path


def replace_durably(temporary: Path, path: Path) -> None:
    """Rename a complete file in its folder. After a crash, `path` has the old or the new content. Raises OSError."""
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
