"""List all ways of sending by name, in the order of the report."""

from __future__ import annotations

from outbox_events.errors import ConfigurationError
from outbox_lab.drill.ways.cdc import Cdc, ExactlyOnceCdc, MessageCdc
from outbox_lab.drill.ways.planted import PLANTED_WAYS
from outbox_lab.drill.ways.polling import HorizonPolling, IncrementingPolling, Relay
from outbox_lab.drill.ways.producing import PRODUCING_WAYS
from outbox_lab.drill.ways.way import Way

_CDC_WAYS, _POLLING_WAYS = (ExactlyOnceCdc, Cdc, MessageCdc), (Relay, IncrementingPolling, HorizonPolling)
_ALL: tuple[type[Way], ...] = (*_CDC_WAYS, *_POLLING_WAYS, *PRODUCING_WAYS)
WAYS = {way.name: way for way in _ALL}
ALL_WAYS = WAYS | PLANTED_WAYS
"""Also contains the ways with a planted mistake, which only run if they are named or with `--planted`."""


def way_named(name: str) -> type[Way]:
    """Return the way with this name. Raises ConfigurationError if the name is unknown."""
    if name not in ALL_WAYS:
        raise ConfigurationError(f"unknown way: {name}", f"use one of: {', '.join(WAYS)}")
    return ALL_WAYS[name]
