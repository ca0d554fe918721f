"""Progress of long operations, reported through a callback so that only the command line prints."""

from __future__ import annotations

from collections.abc import Callable

Reporter = Callable[[str], None]
"""Receives one line of text."""


def silent(_: str) -> None:
    """Ignore the text: the Reporter of callers that show no progress."""
