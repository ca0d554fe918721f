"""Test the handlers of a service, and code that emits events, without a broker. See docs/receiving.md."""

from outbox_events.testing.emitted_events import EmittedEvents, collect_events
from outbox_events.testing.events import event
from outbox_events.testing.in_memory import InMemory
from outbox_events.testing.memory_receiver import MakeReceiver, TestReceiver

__all__ = ["EmittedEvents", "InMemory", "MakeReceiver", "TestReceiver", "collect_events", "event"]
