"""Run two receiver processes, kill them at random times, and wait until they have read the whole topic."""

from __future__ import annotations

import random
import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import Self

from outbox_events.errors import OutboxError, WaitTimeoutError
from outbox_events.waiting import Observation, wait_for
from outbox_kit.kafka.client import KafkaClient
from outbox_kit.pipeline import Kafka
from outbox_lab.drill.components import READY_TIMEOUT_S, ProcessComponent, start_module
from outbox_lab.drill.ledger import Ledger
from outbox_lab.drill.observer import Delivery
from outbox_lab.drill.receivers import tables
from outbox_lab.drill.receivers.effects import EffectCounts, count_effects
from outbox_lab.drill.receivers.member import READY, MemberSettings
from outbox_lab.drill.receivers.strategies import STORES_POSITIONS, STRATEGIES

MEMBERS = 2
KILL_INTERVAL_S = (0.3, 3.0)
END_S = 90
ASSIGNORS = ("range", "cooperative-sticky")


@dataclass(frozen=True)
class Place:
    """Systems and folder that the receivers of a cell use. `name` is part of the names of their files in `folder`."""

    kafka: Kafka
    dsn: str
    topic: str
    folder: Path
    name: str


class Receivers:
    """Runs one consumer group for each strategy during a `with` block. If `strategies` is empty, nothing is run."""

    def __init__(self, place: Place, seed: str, strategies: Sequence[str] = tuple(STRATEGIES)) -> None:
        """Choose an assignor. `seed` determines this choice and the times of the kills."""
        self.kills = 0
        self._place = place
        self._rng = random.Random(seed)  # noqa: S311 - not a secret
        self._members: list[ProcessComponent] = []
        self._stack = ExitStack()
        self._files = place.folder / f"{place.name}.receivers"
        self._settings = MemberSettings(
            kafka=place.kafka.bootstrap_servers,
            dsn=place.dsn,
            topic=place.topic,
            strategies=tuple(strategies),
            assignor=self._rng.choice(ASSIGNORS),
        )

    def __enter__(self) -> Self:
        if self._settings.strategies:
            tables.create(self._place.dsn)
            shutil.rmtree(self._files, ignore_errors=True)
            self._files.mkdir()
            for number in range(MEMBERS):
                self._members.append(self._stack.enter_context(self._start(number)))
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def _start(self, number: int) -> ProcessComponent:
        log = self._place.folder / f"{self._place.name}.receiver-{number}.log"
        member = "outbox_lab.drill.receivers.member"
        return start_module(member, self._settings, self._files, log, ready=READY.encode())

    @contextmanager
    def killed(self) -> Iterator[None]:
        """Kill members at random times during a `with` block."""
        stop = Flag()
        thread = Thread(target=self._kill_until, args=(stop,), name="kills", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(READY_TIMEOUT_S)

    def _kill_until(self, stop: Flag) -> None:
        while self._members and not stop.wait(self._rng.uniform(*KILL_INTERVAL_S)):
            self.kill(self._rng.randrange(MEMBERS))

    def kill(self, number: int) -> None:
        """Send SIGKILL to a member if each of its receivers has applied an event since the member started."""
        member = self._members[number]
        with suppress(OutboxError):  # the member has just ended on its own
            if member.is_ready():
                member.signal(signal.SIGKILL)
                self.kills += 1

    def drain(self, deliveries: Sequence[Delivery]) -> list[str]:
        """Wait until every group has processed all records of the topic. Return a note for each group that has not."""
        ends = {partition: 0 for partition, _ in (delivery.position for delivery in deliveries)}
        for delivery in deliveries:
            ends[delivery.partition] = max(ends[delivery.partition], delivery.offset + 1)
        notes = []
        for strategy in self._settings.strategies:
            try:
                subject = f"the receivers with {strategy} to reach the end of the topic"
                wait_for(subject, partial(self._at_end, strategy, ends), seconds=END_S, interval=0.5)
            except WaitTimeoutError as error:
                notes.append(error.message)
        return notes

    def _at_end(self, strategy: str, ends: dict[int, int]) -> Observation[bool]:
        """Check whether a new owner of each partition would start at the end of the topic, and report the positions."""
        group = self._settings.group(strategy)
        try:
            if strategy in STORES_POSITIONS:
                positions = tables.read_positions(self._place.dsn, group)
            else:
                positions = KafkaClient(self._place.kafka).committed_offsets(group, self._place.topic, ends)
        except OutboxError as error:
            return Observation(None, error.message)
        behind = [
            f"partition {partition} at {positions.get(partition)} of {end}"
            for partition, end in sorted(ends.items())
            if positions.get(partition, 0) < end
        ]
        return Observation(None if behind else True, ", ".join(behind))

    def count_effects(self, ledger: Ledger) -> tuple[EffectCounts, ...]:
        """Return the counts of the effects of each strategy. Call `drain` first."""
        return tuple(
            count_effects(strategy, ledger, tables.read_effects(self._place.dsn, self._settings.group(strategy)))
            for strategy in self._settings.strategies
        )
