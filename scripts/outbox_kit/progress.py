"""How long steps tell what they do: a callback, so that only the command line prints."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str], None]
"""Takes one short sentence for a person."""


def silent(_: str) -> None:
    """Report nothing."""
