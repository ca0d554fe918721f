"""Send writes whose outcome may be unknown: read the state, and repeat a write only if it had no effect."""

from __future__ import annotations

from collections.abc import Callable

from outbox_events.errors import RejectedError, UnreachableError, WaitTimeoutError
from outbox_events.waiting import Observation, wait_for
from outbox_kit.connect.rest import AlreadyExistsError, UnknownOutcomeError
from outbox_kit.results import Reporter

# A request that timed out in the worker (during a rebalance) is usually completed some seconds after the rebalance.
CONFIRM_TIMEOUT_S = 30.0


def write_confirmed(
    description: str, write: Callable[[], None], is_done: Callable[[], bool], progress: Reporter
) -> None:
    """Send a write. If its outcome is unknown, poll `is_done`, and send the write once more if it had no effect.

    Raises UnknownOutcomeError if the second attempt cannot be confirmed either.
    """
    try:
        write()
    except UnknownOutcomeError as error:
        progress(f"{description}: {error.message}; checking whether the request took effect")
        if _wait_until_done(description, is_done):
            return
        progress(f"{description}: the request had no effect; retrying")
        try:
            write()
        except AlreadyExistsError:
            # The first attempt succeeded late, or another client created the connector.
            if not is_done():
                raise
        except UnknownOutcomeError:
            if not _wait_until_done(description, is_done):
                raise


def send_request(write: Callable[[], None], progress: Reporter) -> None:
    """Send a write. An unknown outcome is reported but does not raise an error, as the caller awaits the effect."""
    try:
        write()
    except UnknownOutcomeError as error:
        progress(f"{error.message}; waiting for the effect")


def _wait_until_done(description: str, is_done: Callable[[], bool]) -> bool:
    def poll() -> Observation[bool]:
        try:
            return Observation(is_done() or None, "not done")
        except (UnreachableError, RejectedError) as error:
            # A busy worker also rejects reads, with HTTP 500 `Request timed out`.
            return Observation(None, error.message)

    try:
        return wait_for(f"{description} to be done", poll, seconds=CONFIRM_TIMEOUT_S, interval=1)
    except WaitTimeoutError:
        return False
