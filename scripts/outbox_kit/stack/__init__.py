"""Run the embedded stack: PostgreSQL, Kafka, registry and Connect as local processes under Supervisor.

The subpackage `services` defines the services. `outbox_kit.testing` runs the same services in containers.
"""

from outbox_kit.stack.control import ProcessStatus
from outbox_kit.stack.services.service import Options
from outbox_kit.stack.stack import Stack
from outbox_kit.stack.state import StackState

__all__ = ["Options", "ProcessStatus", "Stack", "StackState"]
