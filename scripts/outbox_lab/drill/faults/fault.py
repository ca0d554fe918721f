"""A fault, and what it does to its component."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from outbox_kit.errors import OutboxError


class NotApplicableError(OutboxError):
    """A fault cannot be injected on this machine."""


class Action(StrEnum):
    """What a fault does to its component."""

    NONE = "none"
    KILL = "kill"
    """SIGKILL; the component is started again."""
    PAUSE = "pause"
    """SIGSTOP, and SIGCONT after `seconds`."""
    RESTART = "restart"
    """Orderly stop and start."""
    RESET = "reset"
    """Reset the connections to PostgreSQL."""
    SLOW = "slow"
    """Delay the traffic to PostgreSQL by a constant time per chunk, for `seconds`."""
    BREAK = "break"
    """Destroy an object of the deployed pipeline, by the function of the fault in faults.injection."""
    DAMAGE = "damage"
    """Damage a disk or a database of the stack, by the function of the fault in faults.injection."""


@dataclass(frozen=True)
class Fault:
    """A fault that hits one component. `seconds` is the duration of a pause or a delay.

    `times` is the number of injections in a cell: a process that restarts at once is killed more often, because the
    moment in which a way can lose an event is short. After a fault that `needs_repair`, nothing is delivered until an
    operator has repaired the pipeline. After a fault that `undoes_commits`, the database may
    not have transactions whose events were delivered.
    """

    name: str
    component: str
    action: Action
    description: str
    seconds: float = 0.0
    times: int = 1
    needs_repair: bool = False
    undoes_commits: bool = False

    @property
    def replaces_database(self) -> bool:
        """Whether another server, or an older state, replaces the database: transaction ids are assigned again."""
        return self.action is Action.DAMAGE and self.component == "postgres"

    @property
    def restores_database(self) -> bool:
        """Whether the server loses acknowledged commits of every database. A synchronous standby loses none."""
        return self.name == "restore-postgres"

    @property
    def is_none(self) -> bool:
        """Whether nothing happens, as in the cell that the others are compared with."""
        return self.action is Action.NONE
