"""A plan: the pending changes, and the files and systems that they were computed from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import get_args

from outbox_kit.changes import Change, System
from outbox_kit.pipeline import LockedSchema

SYSTEMS: tuple[System, ...] = get_args(System)
"""In the order of deployment: the connector requires the others."""


@dataclass(frozen=True)
class RollOut:
    """Safe order of steps for a schema change of an aggregate."""

    aggregate: str
    added: tuple[str, ...]
    removed: tuple[str, ...]
    steps: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """Every pending change, in the order in which apply makes them.

    `only` names the requested systems (empty: all), `files` is a fingerprint of the desired state, `waits_for` lists
    objects that the connector requires and `only` excludes. `cluster_id` (Kafka), `registry` (URL) and `database`
    (SYSTEM_IDENTIFIER/NAME) identify the systems that were read; None: not read. `schemas` are the registered versions
    by aggregate type, newest first; `config` is the connector's config without schemas.
    """

    pipeline: str
    environment: str
    changes: tuple[Change, ...]
    rollout: tuple[RollOut, ...] = ()
    recover: bool = False
    only: tuple[System, ...] = ()
    files: str = ""
    waits_for: tuple[str, ...] = ()
    cluster_id: str | None = None
    registry: str | None = None
    database: str | None = None
    schemas: dict[str, list[LockedSchema]] = field(default_factory=dict, compare=False, repr=False)
    config: dict[str, str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def systems(self) -> tuple[System, ...]:
        return self.only or SYSTEMS

    def of(self, system: System) -> list[Change]:
        """Return the changes of one system."""
        return [change for change in self.changes if change.system == system]

    @property
    def dangerous(self) -> list[Change]:
        """The changes that require --allow. `--recover` allows those of the database."""
        return [
            change for change in self.changes if change.danger and not (self.recover and change.system == "postgres")
        ]
