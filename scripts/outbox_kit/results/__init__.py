"""Results of operations on a pipeline: planned changes, outcomes of checks, progress, and repair commands."""

from collections.abc import Callable

Reporter = Callable[[str], None]
"""Function that receives one line of progress of a long operation, so that only the command line prints."""


def silent(_: str) -> None:
    """Ignore the text. This is the Reporter of callers that do not show progress."""
