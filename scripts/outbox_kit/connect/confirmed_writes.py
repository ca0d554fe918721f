"""Writes that are made once, though the worker may not say whether it made them."""

from __future__ import annotations

from collections.abc import Callable

from outbox_kit.connect.client import AlreadyExistsError, MaybeDoneError
from outbox_kit.errors import RejectedError, UnreachableError, WaitTimeoutError
from outbox_kit.progress import Progress
from outbox_kit.waiting import Seen, wait_for

# A worker that gave up waiting for its herder usually acts within seconds of the rebalance's end.
CONFIRM_TIMEOUT_S = 30.0


def confirmed(what: str, write: Callable[[], None], happened: Callable[[], bool], progress: Progress) -> None:
    """Make a write; without an answer, look whether it has happened, and make it once more only if it has not.

    Every write here may be made twice. Raises MaybeDoneError when even the second one is not to be seen.
    """
    try:
        write()
    except MaybeDoneError as error:
        progress(f"{what}: {error.message}; look whether it has happened")
        if _happens(what, happened):
            return
        progress(f"{what}: it has not happened; once more")
        _repeat(what, write, happened)


def sent(write: Callable[[], None], progress: Progress) -> None:
    """Make a write that a wait for its effect follows anyway."""
    try:
        write()
    except MaybeDoneError as error:
        progress(f"{error.message}; wait for its effect all the same")


def _repeat(what: str, write: Callable[[], None], happened: Callable[[], bool]) -> None:
    try:
        write()
    except AlreadyExistsError:
        # The first one has happened after all, or somebody else was faster.
        if not happened():
            raise
    except MaybeDoneError:
        if not _happens(what, happened):
            raise


def _happens(what: str, happened: Callable[[], bool]) -> bool:
    def look() -> Seen[bool]:
        try:
            return Seen(True if happened() else None, "not done")
        except (UnreachableError, RejectedError) as error:
            # A worker that is still busy answers the look, too, with 500 `Request timed out`.
            return Seen(None, error.message)

    try:
        return wait_for(f"{what} to be done", look, seconds=CONFIRM_TIMEOUT_S, every=1)
    except WaitTimeoutError:
        return False
