"""Define the error that the embedded stack and the stack in containers raise."""

from pathlib import Path

from outbox_common.components.folders import CHECKOUT, cache_folder, is_checkout
from outbox_events.errors import OutboxError


class StackError(OutboxError):
    """The stack could not be started or stopped."""


def setup_hint(otherwise: str = "", checkout: Path = CHECKOUT) -> str:
    """Return the hint to run `make setup`, or `otherwise` if outbox-kit was not installed from a checkout."""
    if is_checkout(checkout):
        return "run `make setup`"
    return otherwise or f"stop all stacks, then delete {cache_folder()}; `outbox stack up` downloads it again"
