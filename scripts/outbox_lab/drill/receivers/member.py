"""Run one receiver for each strategy until SIGTERM. Each receiver joins the consumer group of its strategy.

    python -m outbox_lab.drill.receivers.member SETTINGS.json

This module runs as a process. If a receiver ends with an error, the process opens it again, as a service manager
restarts a service that failed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event as Flag

from outbox_events import Event, Handlers, Receiver
from outbox_lab.drill.components import flag_of_termination, read_settings
from outbox_lab.drill.observer import Delivery, version_of
from outbox_lab.drill.receivers import tables
from outbox_lab.drill.receivers.strategies import STRATEGIES, Resources

logger = logging.getLogger(__name__)

READY = "every receiver has applied events"
RESTART_INTERVAL_S = 1.0
POLL_S = 0.2
# This is the shortest timeout that the broker accepts, so that the partitions of a killed member are soon reassigned.
SESSION_TIMEOUT_MS = 6000
HEARTBEAT_INTERVAL_MS = 500
COMMIT_INTERVAL_MS = 1000


@dataclass(frozen=True)
class MemberSettings:
    """Settings of the receiver processes in a cell."""

    kafka: str
    dsn: str
    topic: str
    strategies: tuple[str, ...]
    assignor: str

    def resources(self, strategy: str) -> Resources:
        """Return the resources that a strategy uses."""
        return Resources(self.dsn, self.group(strategy))

    def group(self, strategy: str) -> str:
        """Return the id of the consumer group of a strategy."""
        return f"{self.topic}.{strategy}"


class Member:
    """Runs one receiver. `has_applied` is set when the receiver has applied its first event."""

    def __init__(self, settings: MemberSettings, strategy: str, stop: Flag) -> None:
        self.has_applied = Flag()
        self._settings = settings
        self._strategy = strategy
        self._stop = stop
        self._handlers = Handlers[tables.Connection]()
        self._handlers.otherwise(self._apply)

    def run(self) -> None:
        """Receive events until the stop flag is set. Open a new receiver after each error."""
        while not self._stop.is_set():
            try:
                with self._receiver() as receiver:
                    receiver.run(self._stop, poll_s=POLL_S)
            except Exception:
                logger.exception("%s: the receiver ended", self._strategy)
                self._stop.wait(RESTART_INTERVAL_S)

    def _receiver(self) -> Receiver[tables.Connection]:
        settings = {
            "bootstrap.servers": self._settings.kafka,
            "group.id": self._settings.group(self._strategy),
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
            "auto.commit.interval.ms": COMMIT_INTERVAL_MS,
            "partition.assignment.strategy": self._settings.assignor,
        }
        strategy = STRATEGIES[self._strategy](self._settings.resources(self._strategy))
        return Receiver(settings, [self._settings.topic], strategy, self._handlers)

    def _apply(self, event: Event, connection: tables.Connection) -> None:
        effect = Delivery(event.event_id, event.partition, event.offset, None, None, version_of(event.raw_value))
        tables.apply(connection, self._settings.group(self._strategy), effect)
        self.has_applied.set()


def run_members(settings: MemberSettings) -> None:
    """Run one receiver for each strategy until SIGTERM. Log READY when every receiver has applied an event."""
    stop = flag_of_termination()
    members = [Member(settings, strategy, stop) for strategy in settings.strategies]
    with ThreadPoolExecutor(len(members)) as pool:
        for member in members:
            pool.submit(member.run)
        if _wait_until_applied(members, stop):
            logger.warning(READY)
        while not stop.wait(POLL_S):
            pass


def _wait_until_applied(members: Sequence[Member], stop: Flag) -> bool:
    """Wait until every receiver has applied an event. Return False if the stop flag is set before that."""
    while not stop.is_set() and not all(member.has_applied.is_set() for member in members):
        stop.wait(POLL_S)
    return not stop.is_set()


if __name__ == "__main__":
    run_members(read_settings(MemberSettings))
