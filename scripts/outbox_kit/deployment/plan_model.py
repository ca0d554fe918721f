"""A plan: what apply would change, and what it was made from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import get_args

from outbox_kit.changes import Change, System
from outbox_kit.pipeline import LockedSchema

SYSTEMS: tuple[System, ...] = get_args(System)
"""In the order in which they are changed: the connector needs the others."""


@dataclass(frozen=True)
class RollOut:
    """The safe order for a change of an aggregate's schema."""

    aggregate: str
    added: tuple[str, ...]
    removed: tuple[str, ...]
    steps: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """Every pending change, in the order in which apply makes them."""

    pipeline: str
    environment: str
    changes: tuple[Change, ...]
    rollout: tuple[RollOut, ...] = ()
    recover: bool = False
    only: tuple[System, ...] = ()
    """Systems that were asked for; empty: all."""
    files: str = ""
    """Fingerprint of what the files want."""
    waits_for: tuple[str, ...] = ()
    """Objects that the connector needs and that `only` leaves out."""
    cluster_id: str | None = None
    """The Kafka cluster that was looked at; None: none was asked. So with the two below."""
    registry: str | None = None
    """Address of the registry."""
    database: str | None = None
    """SYSTEM_IDENTIFIER/NAME: what a server is, whatever address leads to it."""
    schemas: dict[str, list[LockedSchema]] = field(default_factory=dict, compare=False, repr=False)
    """What the registry has, by aggregate type, newest first."""
    config: dict[str, str] = field(default_factory=dict, compare=False, repr=False)
    """The connector's config, schemas apart."""

    @property
    def systems(self) -> tuple[System, ...]:
        return self.only or SYSTEMS

    def of(self, system: System) -> list[Change]:
        """The changes of one system."""
        return [change for change in self.changes if change.system == system]

    @property
    def dangerous(self) -> list[Change]:
        """Changes that need to be allowed. `--recover` allows what it is there for: a slot that is made again."""
        return [
            change for change in self.changes if change.danger and not (self.recover and change.system == "postgres")
        ]
