"""Define the error that the embedded stack and the stack in containers raise."""

from pathlib import Path

from outbox_events.errors import OutboxError

CHECKOUT = Path(__file__).resolve().parents[3]


class StackError(OutboxError):
    """The stack could not be started or stopped."""


def setup_hint(otherwise: str = "", checkout: Path = CHECKOUT) -> str:
    """Return the hint to run `make setup`, or `otherwise` if outbox-kit was not installed from a checkout."""
    if (checkout / "Makefile").is_file():
        return "run `make setup`"
    return otherwise or "copy build/runtime and smt/target/plugin from a checkout in which `make setup` was run"
