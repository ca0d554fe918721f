"""Define faults and their actions, and list all faults by name in the order of the report."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from outbox_events.errors import ConfigurationError, OutboxError

_PROMOTE = "SIGKILL of PostgreSQL, and promotion of a synchronous standby"


class NotApplicableError(OutboxError):
    """Raised if a fault cannot be injected on this machine."""


class Action(StrEnum):
    """What a fault does to its component."""

    NONE = "none"
    KILL = "kill"
    """Send SIGKILL. The component is then restarted."""
    PAUSE = "pause"
    """Send SIGSTOP, and send SIGCONT after `seconds`."""
    RESTART = "restart"
    """Stop the component gracefully, and start it again."""
    RESET = "reset"
    """Reset the connections to PostgreSQL."""
    SLOW = "slow"
    """Delay every chunk of data from and to PostgreSQL by a constant time. The delay ends after `seconds`."""
    BREAK = "break"
    """Call the function in faults.injection.BREAKAGES, which destroys an object of the deployed pipeline."""
    DAMAGE = "damage"
    """Call the function in faults.injection.DAMAGES, which damages a disk or a database of the stack."""


@dataclass(frozen=True)
class Fault:
    """A fault that hits one component. `seconds` is the duration of a pause or delay.

    `times` is the number of injections per cell. A process that restarts immediately is killed more often, because a
    way of sending can lose an event only if the kill hits a short time window. After a fault that `needs_repair`,
    events are not delivered until an operator has repaired the pipeline. After a fault that `undoes_commits`, the
    database might lack transactions whose events were delivered.
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
        """Whether another server or an older backup replaces the database, which then assigns transaction ids again."""
        return self.action is Action.DAMAGE and self.component == "postgres"

    @property
    def restores_database(self) -> bool:
        """Whether all databases of the server lose acknowledged commits. A promoted standby still has these commits."""
        return self.name == "restore-postgres"

    @property
    def is_none(self) -> bool:
        """Whether nothing is injected. Cells without a fault are the baseline with which other cells are compared."""
        return self.action is Action.NONE


def _kill(component: str, description: str, *, times: int = 1) -> Fault:
    return Fault(f"kill-{component}", component, Action.KILL, description, times=times)


def _break(name: str, component: str, description: str) -> Fault:
    return Fault(name, component, Action.BREAK, description, needs_repair=True)


def _damage(name: str, component: str, description: str, *, undoes: bool = False) -> Fault:
    return Fault(name, component, Action.DAMAGE, description, needs_repair=undoes, undoes_commits=undoes)


# Connect is paused longer than session.timeout.ms (6 s), Kafka longer than the drill's wal_sender_timeout (8 s), and
# the relay and the writers longer than the transaction.timeout.ms of their producers (10 s).
FAULTS: dict[str, Fault] = {
    fault.name: fault
    for fault in (
        Fault("none", "", Action.NONE, "No fault."),
        _kill("connect", "SIGKILL of the Connect worker."),
        _kill("relay", "SIGKILL of one relay process, five times.", times=5),
        _kill("writer", "SIGKILL of the service process, ten times.", times=10),
        _kill("kafka", "SIGKILL of the broker."),
        _kill("postgres", "SIGKILL of every PostgreSQL process."),
        Fault("pause-connect", "connect", Action.PAUSE, "SIGSTOP of the Connect worker, 15 s.", 15),
        Fault("pause-relay", "relay", Action.PAUSE, "SIGSTOP of one relay process, 15 s.", 15),
        Fault("pause-writer", "writer", Action.PAUSE, "SIGSTOP of the service process, 15 s.", 15),
        Fault("pause-kafka", "kafka", Action.PAUSE, "SIGSTOP of the broker, 15 s (exceeds wal_sender_timeout).", 15),
        Fault("pause-postgres", "postgres", Action.PAUSE, "SIGSTOP of every PostgreSQL process, 10 s.", 10),
        Fault("restart-kafka", "kafka", Action.RESTART, "Graceful restart of the broker."),
        Fault("restart-postgres", "postgres", Action.RESTART, "Fast shutdown and start of PostgreSQL."),
        Fault("reset-connection", "proxy", Action.RESET, "TCP reset of the sender's connections to PostgreSQL."),
        Fault("slow-connection", "proxy", Action.SLOW, "200 ms of delay per chunk from and to PostgreSQL, 10 s.", 10),
        _break("slot-invalidated", "slot", "Stop of the connector until its slot is invalidated. A repair follows."),
        _damage("kill-leader", "kafka", "SIGKILL of two of three brokers, one by one, with min.insync.replicas=2."),
        _damage("disk-full-kafka", "kafka", "Full disk of the broker, until 5 s after the broker has exited."),
        _damage("restore-postgres", "postgres", "Restore of a backup that is 5 s old. A repair follows.", undoes=True),
        _damage("promote-standby", "postgres", f"{_PROMOTE} that has no slot. A repair follows.", undoes=True),
        _damage("promote-with-slot", "postgres", f"{_PROMOTE} that has a copy of the failover slot."),
    )
}


def fault_named(name: str) -> Fault:
    """Return the fault with this name. Raises ConfigurationError if the name is unknown."""
    if name not in FAULTS:
        raise ConfigurationError(f"unknown fault: {name}", f"use one of: {', '.join(FAULTS)}")
    return FAULTS[name]
