"""Apply events: insert or send one effect per event, or make a planted mistake that the drill must find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import Any
from uuid import uuid4

from outbox_events import Event, Strategy
from outbox_lab.drill.receivers import effects_topic, tables
from outbox_lab.drill.receivers.strategies import SENDS_EFFECTS, STRATEGIES, Resources

Apply = Callable[[Any, str, Event], None]
"""Applies an event of a consumer group in the open transaction of the strategy."""
SKIPPED_SHARE = 20


@dataclass(frozen=True)
class PlantedHandler:
    """A handler with a mistake. It runs with the strategy `base`. The count `finds` must show the mistake."""

    base: str
    finds: str
    handler: Callable[[], Apply]


def _skips_events() -> Apply:
    numbers = count()

    def apply(connection: tables.Connection, group: str, event: Event) -> None:
        if next(numbers) % SKIPPED_SHARE:
            tables.apply(connection, group, event)

    return apply


def _applies_twice() -> Apply:
    def apply(connection: tables.Connection, group: str, event: Event) -> None:
        tables.apply(connection, group, event)
        tables.apply(connection, group, event)

    return apply


def _invents_events() -> Apply:
    def apply(connection: tables.Connection, group: str, event: Event) -> None:
        tables.apply(connection, group, replace(event, headers={"event_id": str(uuid4())}))

    return apply


def _applies_later() -> Apply:
    held: dict[str, Event] = {}

    def apply(connection: tables.Connection, group: str, event: Event) -> None:
        earlier = held.pop(event.aggregate_id, None)
        if earlier is None:
            held[event.aggregate_id] = event
        else:
            tables.apply(connection, group, event)
            tables.apply(connection, group, earlier)

    return apply


def _applies_old_state_last() -> Apply:
    first: dict[str, Event] = {}

    def apply(connection: tables.Connection, group: str, event: Event) -> None:
        tables.apply(connection, group, event)
        old = first.setdefault(event.aggregate_id, event)
        if old is not event:
            tables.apply(connection, group, old)

    return apply


def _applies_previous_value() -> Apply:
    values: list[bytes | None] = [None]

    def apply(connection: tables.Connection, group: str, event: Event) -> None:
        values.append(event.raw_value)
        tables.apply(connection, group, replace(event, raw_value=values.pop(0)))

    return apply


PLANTED_HANDLERS = {
    "skips-events": PlantedHandler("processed-events", "missing", _skips_events),
    "applies-twice": PlantedHandler("stored-offsets", "repeated", _applies_twice),
    "invents-events": PlantedHandler("processed-events", "phantom", _invents_events),
    "applies-later": PlantedHandler("processed-events", "unordered", _applies_later),
    "applies-old-state-last": PlantedHandler("processed-events", "stale", _applies_old_state_last),
    "applies-previous-value": PlantedHandler("processed-events", "wrong", _applies_previous_value),
}


def base_strategy(name: str) -> str:
    """Return the name of the strategy that receivers called `name` use."""
    return PLANTED_HANDLERS[name].base if name in PLANTED_HANDLERS else name


def create_strategy(name: str, resources: Resources) -> Strategy[Any]:
    """Create the strategy that receivers called `name` use."""
    return STRATEGIES[base_strategy(name)](resources)


def create_handler(name: str) -> Apply:
    """Create the handler that receivers called `name` use."""
    if name in PLANTED_HANDLERS:
        return PLANTED_HANDLERS[name].handler()
    return effects_topic.apply if name in SENDS_EFFECTS else tables.apply
