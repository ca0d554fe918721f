"""All faults by name, in the order of the report."""

from __future__ import annotations

from outbox_kit.errors import ConfigurationError
from outbox_lab.drill.faults.fault import Action, Fault

_PROMOTE = "SIGKILL of PostgreSQL; its synchronous standby replaces it,"


def _kill(component: str, description: str, *, times: int = 1) -> Fault:
    return Fault(f"kill-{component}", component, Action.KILL, description, times=times)


def _break(name: str, component: str, description: str) -> Fault:
    return Fault(name, component, Action.BREAK, description, needs_repair=True)


def _damage(name: str, component: str, description: str, *, undoes: bool = False) -> Fault:
    return Fault(name, component, Action.DAMAGE, description, needs_repair=undoes, undoes_commits=undoes)


# A pause of Connect exceeds session.timeout.ms (6 s), one of Kafka exceeds the drill's wal_sender_timeout (8 s), and
# one of the relay or the writers exceeds their producers' transaction.timeout.ms (10 s).
FAULTS: dict[str, Fault] = {
    fault.name: fault
    for fault in (
        Fault("none", "", Action.NONE, "No fault."),
        _kill("connect", "SIGKILL of the Connect worker."),
        _kill("relay", "SIGKILL of one relay process, five times.", times=5),
        _kill("writer", "SIGKILL of the process of the service, ten times.", times=10),
        _kill("kafka", "SIGKILL of the broker."),
        _kill("postgres", "SIGKILL of every PostgreSQL process."),
        Fault("pause-connect", "connect", Action.PAUSE, "SIGSTOP of the Connect worker, 15 s.", 15),
        Fault("pause-relay", "relay", Action.PAUSE, "SIGSTOP of one relay process, 15 s.", 15),
        Fault("pause-writer", "writer", Action.PAUSE, "SIGSTOP of the process of the service, 15 s.", 15),
        Fault("pause-kafka", "kafka", Action.PAUSE, "SIGSTOP of the broker, 15 s; longer than wal_sender_timeout.", 15),
        Fault("pause-postgres", "postgres", Action.PAUSE, "SIGSTOP of every PostgreSQL process, 10 s.", 10),
        Fault("restart-kafka", "kafka", Action.RESTART, "Orderly restart of the broker."),
        Fault("restart-postgres", "postgres", Action.RESTART, "Fast shutdown and start of PostgreSQL."),
        Fault("reset-connection", "proxy", Action.RESET, "TCP reset of the sender's connections to PostgreSQL."),
        Fault("slow-connection", "proxy", Action.SLOW, "200 ms of delay per chunk from and to PostgreSQL, 10 s.", 10),
        _break("slot-invalidated", "slot", "The connector is stopped until the server invalidates its slot; repaired."),
        _damage("disk-full-kafka", "kafka", "The broker's disk is full until 5 s after the broker has ended."),
        _damage("restore-postgres", "postgres", "Restore of a base backup that is 5 s old; repaired.", undoes=True),
        _damage("promote-standby", "postgres", f"{_PROMOTE} that has no slot; repaired.", undoes=True),
        _damage("promote-with-slot", "postgres", f"{_PROMOTE} that has a copy of the failover slot."),
    )
}


def fault_named(name: str) -> Fault:
    """Return a fault. Raises ConfigurationError for an unknown name."""
    if name not in FAULTS:
        raise ConfigurationError(f"unknown fault: {name}", f"use one of: {', '.join(FAULTS)}")
    return FAULTS[name]
