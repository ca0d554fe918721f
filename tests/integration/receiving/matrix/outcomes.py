"""Outcome of a cell: how often the event with the failure was applied. All other events must be applied once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Cell = tuple[str, str]
"""Names of a failure and a strategy."""
WORDS = {0: "never", 1: "once", 2: "twice"}


@dataclass(frozen=True)
class Outcome:
    """Counts of a cell."""

    effects: int = 1
    """Number of effects of the event that the failure affected."""
    calls: int = 0
    """Number of calls of the dependency for this event, if the failure counts calls."""
    dead_letters: int = 0
    """Number of dead letters of this event."""
    others: Mapping[str, int] = field(default_factory=dict)
    """Effects of other events that were not applied exactly once."""

    @property
    def effect(self) -> str:
        """Return the number of effects in the form in which the table shows it."""
        words = WORDS.get(self.effects, f"{self.effects} times")
        if self.others:
            words += f", {len(self.others)} others not once"
        return words


ONCE = Outcome()
TWICE = Outcome(effects=2)
NEVER = Outcome(effects=0)
DEAD_LETTER = Outcome(effects=0, dead_letters=1)
