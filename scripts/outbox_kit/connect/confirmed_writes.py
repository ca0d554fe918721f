"""Write requests whose outcome the worker may not report: read back, and repeat only what did not happen."""

from __future__ import annotations

from collections.abc import Callable

from outbox_kit.connect.rest import AlreadyExistsError, UnknownOutcomeError
from outbox_kit.errors import RejectedError, UnreachableError, WaitTimeoutError
from outbox_kit.progress import Reporter
from outbox_kit.waiting import Observation, wait_for

# After a herder time-out the worker usually completes the request within seconds of the rebalance.
CONFIRM_TIMEOUT_S = 30.0


def write_confirmed(
    description: str, write: Callable[[], None], is_done: Callable[[], bool], progress: Reporter
) -> None:
    """Send an idempotent write; on an unknown outcome poll `is_done`, and send it once more if it did not happen.

    Raises UnknownOutcomeError when the second attempt cannot be confirmed either.
    """
    try:
        write()
    except UnknownOutcomeError as error:
        progress(f"{description}: {error.message}; checking the outcome")
        if _becomes_true(description, is_done):
            return
        progress(f"{description}: not done; retrying")
        try:
            write()
        except AlreadyExistsError:
            # The first attempt succeeded late, or another client created the connector.
            if not is_done():
                raise
        except UnknownOutcomeError:
            if not _becomes_true(description, is_done):
                raise


def send_request(write: Callable[[], None], progress: Reporter) -> None:
    """Send a write whose effect the caller waits for; an unknown outcome is only reported."""
    try:
        write()
    except UnknownOutcomeError as error:
        progress(f"{error.message}; waiting for the effect")


def _becomes_true(description: str, is_done: Callable[[], bool]) -> bool:
    def poll() -> Observation[bool]:
        try:
            return Observation(is_done() or None, "not done")
        except (UnreachableError, RejectedError) as error:
            # A busy worker rejects reads too, with 500 `Request timed out`.
            return Observation(None, error.message)

    try:
        return wait_for(f"{description} to be done", poll, seconds=CONFIRM_TIMEOUT_S, interval=1)
    except WaitTimeoutError:
        return False
