"""The embedded stack: PostgreSQL, Kafka, registry and Connect as local processes under Supervisor.

    Stack(root).up(progress)  →  StackState  →  Stack(root).down(progress)

Process control belongs here, the services themselves in `services`; containers belong in `outbox_kit.testing`.
"""

from outbox_kit.stack.control import ProcessStatus
from outbox_kit.stack.services.service import Options
from outbox_kit.stack.stack import Stack
from outbox_kit.stack.state import StackState

__all__ = ["Options", "ProcessStatus", "Stack", "StackState"]
