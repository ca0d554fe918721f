"""All ways of sending by name, in the order of the report."""

from __future__ import annotations

from outbox_kit.errors import ConfigurationError
from outbox_lab.drill.ways.cdc import CDC_WAYS
from outbox_lab.drill.ways.polling import POLLING_WAYS
from outbox_lab.drill.ways.producing import PRODUCING_WAYS
from outbox_lab.drill.ways.relay import Relay
from outbox_lab.drill.ways.way import Way

_ALL: tuple[type[Way], ...] = (*CDC_WAYS, Relay, *POLLING_WAYS, *PRODUCING_WAYS)
WAYS: dict[str, type[Way]] = {way.name: way for way in _ALL}


def way_named(name: str) -> type[Way]:
    """Return a way. Raises ConfigurationError for an unknown name."""
    if name not in WAYS:
        raise ConfigurationError(f"unknown way: {name}", f"use one of: {', '.join(WAYS)}")
    return WAYS[name]
