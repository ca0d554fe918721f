"""Run one receiver for each strategy until SIGTERM. Each receiver joins the consumer group of its strategy.

    python -m outbox_lab.drill.receivers.member SETTINGS.json

This module runs as a process. If a receiver ends with an error, the process opens it again, as a service manager
restarts a service that failed. After an error that requires a new process, the process ends, and the drill restarts it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event as Flag
from typing import Any

from outbox_events import ClientStuckError, Event, Handlers, Receiver, ReceiverStoppedError
from outbox_events.receiving.exit_limit import EXIT_CODE
from outbox_lab.drill.components import flag_of_termination, read_settings
from outbox_lab.drill.receivers import latest_states
from outbox_lab.drill.receivers.handlers import create_handler, create_strategy
from outbox_lab.drill.receivers.strategies import Resources

logger = logging.getLogger(__name__)

JOINING = "the receivers join their groups"
READY = "every receiver has applied events"
RESTART_INTERVAL_S = 1.0
POLL_S = 0.2
# This is the shortest timeout that the broker accepts, so that the partitions of a killed member are soon reassigned.
SESSION_TIMEOUT_MS = 6000
HEARTBEAT_INTERVAL_MS = 500
COMMIT_INTERVAL_MS = 1000


@dataclass(frozen=True)
class MemberSettings:
    """Settings of the receiver processes in a cell. `folder` contains snapshots of LatestState."""

    kafka: str
    dsn: str
    topic: str
    strategies: tuple[str, ...]
    assignor: str
    folder: str
    number: int = 0

    def resources(self, strategy: str) -> Resources:
        """Return the resources that a strategy uses."""
        return Resources(self.kafka, self.dsn, self.group(strategy), self.number)

    def group(self, strategy: str) -> str:
        """Return the id of the consumer group of a strategy."""
        return f"{self.topic}.{strategy}"


class Member:
    """Runs one receiver. `has_applied` is set when the receiver has applied its first event."""

    def __init__(self, settings: MemberSettings, strategy: str, stop: Flag) -> None:
        self.has_applied = Flag()
        self._settings = settings
        self._strategy = strategy
        self._handler = create_handler(strategy)
        self._stop = stop
        self._handlers = Handlers[Any]()
        self._handlers.otherwise(self._apply)

    def run(self) -> None:
        """Receive events until the stop flag is set. After an error, open a new receiver or end the process."""
        while not self._stop.is_set():
            try:
                with self._receiver() as receiver:
                    receiver.run(self._stop, poll_s=POLL_S)
            except Exception as error:
                logger.exception("%s: the receiver ended", self._strategy)
                if isinstance(error, ReceiverStoppedError | ClientStuckError):
                    os._exit(EXIT_CODE)  # a call that does not return would block the regular end
                self._stop.wait(RESTART_INTERVAL_S)

    def _receiver(self) -> Receiver[Any]:
        settings = {
            "bootstrap.servers": self._settings.kafka,
            "group.id": self._settings.group(self._strategy),
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
            "auto.commit.interval.ms": COMMIT_INTERVAL_MS,
            "partition.assignment.strategy": self._settings.assignor,
        }
        strategy = create_strategy(self._strategy, self._settings.resources(self._strategy))
        return Receiver(settings, [self._settings.topic], strategy, self._handlers)

    def _apply(self, event: Event, work: Any) -> None:  # noqa: ANN401 - the strategy decides
        self._handler(work, self._settings.group(self._strategy), event)
        self.has_applied.set()


def run_members(settings: MemberSettings) -> None:
    """Run LatestState and one receiver for each strategy until SIGTERM.

    Log JOINING before the receivers join their groups, and READY when every receiver has applied an event.
    """
    stop = flag_of_termination()
    members = [Member(settings, strategy, stop) for strategy in settings.strategies]
    with ThreadPoolExecutor(len(members) + 1) as pool:
        logger.warning(JOINING)
        pool.submit(latest_states.follow, settings.kafka, settings.topic, Path(settings.folder), settings.number, stop)
        for member in members:
            pool.submit(member.run)
        if _wait_until_applied(members, stop):
            logger.warning(READY)
        stop.wait()


def _wait_until_applied(members: Sequence[Member], stop: Flag) -> bool:
    """Wait until every receiver has applied an event. Return False if the stop flag is set before that."""
    while not stop.is_set() and not all(member.has_applied.is_set() for member in members):
        stop.wait(POLL_S)
    return not stop.is_set()


if __name__ == "__main__":
    run_members(read_settings(MemberSettings))
