"""Counters of a receiver, with a hook for a metrics library."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, fields

log = logging.getLogger("outbox_events.receiving")
Hook = Callable[[str, int], None]
"""Called with the name of a counter and the number that was added."""


@dataclass
class Counters:
    """What a receiver has done since it started."""

    received: int = 0
    """Polled records, also those that are polled again after a pause."""
    handled: int = 0
    duplicates: int = 0
    unhandled: int = 0
    """Events of a type that has no handler."""
    retries: int = 0
    recovered: int = 0
    """Events that could not be handled and were passed to the recoverer."""
    recoverer_errors: int = 0
    hook: Hook | None = field(default=None, repr=False, compare=False)

    def add(self, name: str, count: int = 1) -> None:
        """Add to a counter, and call the hook."""
        if count:
            setattr(self, name, getattr(self, name) + count)
            if self.hook is not None:
                try:
                    self.hook(name, count)
                except Exception:
                    log.exception("the hook of counter %s failed", name)

    def to_dict(self) -> dict[str, int]:
        """Return the counters by name."""
        return {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name != "hook"}
