"""Format numbers and lists for messages."""

from __future__ import annotations

from collections.abc import Sequence

SIZE_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
TIME_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: 1 change, 2 changes."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def shortened_list(items: Sequence[str], limit: int) -> str:
    """Return the first `limit` items separated by commas, followed by `...` if there are more."""
    return ", ".join([*items[:limit], *(["..."] if len(items) > limit else [])])


def format_size(size: int) -> str:
    """Format a number of bytes with a unit, such as 17.2 MiB."""
    for factor, unit in SIZE_UNITS:
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} bytes"


def format_age(seconds: float) -> str:
    """Format a number of seconds with the largest unit that fits at least twice, such as 90 s, 3 h or 2 d."""
    for factor, unit in TIME_UNITS:
        if seconds >= 2 * factor:
            return f"{seconds // factor:.0f} {unit}"
    return f"{seconds:.0f} s"
