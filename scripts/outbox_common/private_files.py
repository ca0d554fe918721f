"""Write files that only their owner can read."""

from pathlib import Path


def write_private(path: Path, text: str) -> None:
    """Write a UTF-8 file that only its owner can read at any time. The mode of a device or pipe is not changed."""
    path.touch(mode=0o600)
    if path.is_file():
        path.chmod(0o600)
    path.write_text(text, encoding="utf-8")
