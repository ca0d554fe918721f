"""Faults of the drill, and their injection."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from outbox_kit.drill.components import Component
from outbox_kit.drill.proxy import Proxy
from outbox_kit.errors import ConfigurationError


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
    """Delay the traffic to PostgreSQL by SLOW_DELAY_S per chunk, for `seconds`."""


SLOW_DELAY_S = 0.2


@dataclass(frozen=True)
class Fault:
    """A fault that hits one component. `seconds` is the duration of a pause or a delay.

    `times` is the number of injections in a cell: a process that restarts at once is killed more often, because the
    moment in which a way can lose an event is short.
    """

    name: str
    component: str
    action: Action
    description: str
    seconds: float = 0.0
    times: int = 1

    @property
    def is_none(self) -> bool:
        """Whether nothing happens, as in the cell that the others are compared with."""
        return self.action is Action.NONE


def _kill(component: str, description: str, *, times: int = 1) -> Fault:
    return Fault(f"kill-{component}", component, Action.KILL, description, times=times)


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
    )
}


def fault_named(name: str) -> Fault:
    """Return a fault. Raises ConfigurationError for an unknown name."""
    if name not in FAULTS:
        raise ConfigurationError(f"unknown fault: {name}", f"use one of: {', '.join(FAULTS)}")
    return FAULTS[name]


def inject(fault: Fault, components: Mapping[str, Component], proxy: Proxy) -> None:
    """Inject a fault; return when a pause or delay is over."""
    match fault.action:
        case Action.KILL:
            components[fault.component].signal(signal.SIGKILL)
        case Action.PAUSE:
            _pause(components[fault.component], fault.seconds)
        case Action.RESTART:
            components[fault.component].restart()
        case Action.RESET:
            proxy.reset_connections()
        case Action.SLOW:
            _slow(proxy, fault.seconds)
        case Action.NONE:
            pass


def _pause(component: Component, seconds: float) -> None:
    component.signal(signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        component.signal(signal.SIGCONT)


def _slow(proxy: Proxy, seconds: float) -> None:
    proxy.set_delay(SLOW_DELAY_S)
    try:
        time.sleep(seconds)
    finally:
        proxy.set_delay(0)
