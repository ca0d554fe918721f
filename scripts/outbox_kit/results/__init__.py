"""Represent the results of operations on a pipeline: planned changes, checks, progress and repair commands."""

from collections.abc import Callable

Reporter = Callable[[str], None]
"""Function that receives a progress message from a long operation, so that only `outbox_kit.cli` prints."""


def silent(_: str) -> None:
    """Ignore the text. This is the Reporter for callers that do not show progress."""
