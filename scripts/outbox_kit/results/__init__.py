"""Results of work on a pipeline: planned changes, outcomes of checks, progress, and the commands that repair."""

from collections.abc import Callable

Reporter = Callable[[str], None]
"""Receives one line of text about the progress of a long operation, so that only the command line prints."""


def silent(_: str) -> None:
    """Ignore the text: the Reporter of callers that show no progress."""
