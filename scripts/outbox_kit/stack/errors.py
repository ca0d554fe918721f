"""Error of the embedded stack and of the stack in containers."""

from outbox_events.errors import OutboxError


class StackError(OutboxError):
    """The stack could not be started or stopped."""
