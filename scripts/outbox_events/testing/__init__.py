"""Test the handlers of a service, and code that emits events, without a broker. See docs/receiving.md.

Each name is imported on first use, so a service that only emits events does not need the extra `kafka`.
"""

from typing import TYPE_CHECKING

from outbox_events.extras import imported_on_first_use

if TYPE_CHECKING:
    from outbox_events.testing.emitted_events import EmittedEvents, collect_events
    from outbox_events.testing.events import event
    from outbox_events.testing.in_memory import InMemory
    from outbox_events.testing.memory_receiver import MakeReceiver, TestReceiver

_HOMES = {
    "EmittedEvents": "emitted_events",
    "InMemory": "in_memory",
    "MakeReceiver": "memory_receiver",
    "TestReceiver": "memory_receiver",
    "collect_events": "emitted_events",
    "event": "events",
}
__all__ = ["EmittedEvents", "InMemory", "MakeReceiver", "TestReceiver", "collect_events", "event"]
__getattr__ = imported_on_first_use(__name__, _HOMES)
