"""The embedded stack: real PostgreSQL, Kafka, registry and Connect as local processes.

    Stack(root).up(progress)  →  StackState  →  Stack(root).down(progress)

See docs/stack.md for what runs and where its state is.
"""

from outbox_kit.stack.control import ProcessStatus
from outbox_kit.stack.services.service import Options
from outbox_kit.stack.stack import Stack
from outbox_kit.stack.state import StackState

__all__ = ["Options", "ProcessStatus", "Stack", "StackState"]
