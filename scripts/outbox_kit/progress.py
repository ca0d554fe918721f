"""Progress of long operations, reported through a callback so that only the command line prints."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Reporter = Callable[[str], None]
"""Receives one line of text."""


def silent(_: str) -> None:
    """Ignore the text: the Reporter of callers that show no progress."""


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: 1 change, 2 changes."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def shortened_list(items: Sequence[str], limit: int) -> str:
    """Return the first `limit` items, separated by commas, and `...` if there are more."""
    return ", ".join([*items[:limit], *(["..."] if len(items) > limit else [])])
