"""Define the error that the embedded stack and the stack in containers raise."""

from outbox_events.errors import OutboxError


class StackError(OutboxError):
    """The stack could not be started or stopped."""
