"""Run two receiver processes, kill them at random times, and wait until they have read the whole topic."""

from __future__ import annotations

import random
import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import Self

from outbox_events.errors import OutboxError, WaitTimeoutError
from outbox_events.waiting import Observation, wait_for
from outbox_kit.kafka.client import KafkaClient
from outbox_kit.pipeline import Kafka
from outbox_lab.drill.components import READY_TIMEOUT_S, ProcessComponent, start_module, stop_all
from outbox_lab.drill.ledger import Ledger
from outbox_lab.drill.observer import Delivery
from outbox_lab.drill.receivers import effects_topic, latest_states, tables
from outbox_lab.drill.receivers.effects import EffectCounts, count_effects
from outbox_lab.drill.receivers.handlers import base_strategy
from outbox_lab.drill.receivers.member import JOINING, READY, MemberSettings
from outbox_lab.drill.receivers.strategies import SENDS_EFFECTS, STORES_POSITIONS, STRATEGIES

MEMBERS = 2
INTERVAL_S = (0.3, 3.0)
# Longer than the session timeout, so that another member takes over the partitions during the pause.
PAUSE_S = (7.0, 9.0)
PAUSE_SHARE = 0.3
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
        """Choose an assignor. `seed` determines this choice and the times of the kills and pauses."""
        self.kills = self.early_kills = self.pauses = 0
        self._may_be_killed_early: set[int] = set()
        self._place = place
        self._rng = random.Random(seed)  # noqa: S311 - not a secret
        self._members: list[ProcessComponent] = []
        self._files = place.folder / f"{place.name}.receivers"
        self._settings = MemberSettings(
            kafka=place.kafka.bootstrap_servers,
            dsn=place.dsn,
            topic=place.topic,
            strategies=tuple(strategies),
            assignor=self._rng.choice(ASSIGNORS),
            folder=str(self._files),
        )

    def __enter__(self) -> Self:
        if self._settings.strategies:
            tables.create(self._place.dsn)
            for strategy in SENDS_EFFECTS.intersection(self._settings.strategies):
                effects_topic.create(self._place.kafka, self._settings.group(strategy))
            shutil.rmtree(self._files, ignore_errors=True)
            self._files.mkdir()
            for number in range(MEMBERS):
                self._members.append(self._start(number))
        return self

    def __exit__(self, *exception: object) -> None:
        stop_all(self._members)

    def _start(self, number: int) -> ProcessComponent:
        log = self._place.folder / f"{self._place.name}.receiver-{number}.log"
        member = "outbox_lab.drill.receivers.member"
        return start_module(member, replace(self._settings, number=number), self._files, log, ready=READY.encode())

    @contextmanager
    def disturbed(self) -> Iterator[None]:
        """Kill and pause members at random times during a `with` block."""
        stop = Flag()
        thread = Thread(target=self._disturb_until, args=(stop,), name="kills", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(READY_TIMEOUT_S)

    def _disturb_until(self, stop: Flag) -> None:
        while self._members and not stop.wait(self._rng.uniform(*INTERVAL_S)):
            number, is_pause = self._rng.randrange(MEMBERS), self._rng.random() < PAUSE_SHARE
            if not self._members[number].is_ready():
                self.kill_early(number)
            elif is_pause:
                self.pause(number, self._rng.uniform(*PAUSE_S), stop)
            else:
                self.kill(number)

    def kill(self, number: int) -> None:
        """Send SIGKILL to a member if each of its receivers has applied an event since the member started."""
        if self._members[number].is_ready():
            self._members[number].signal_now(signal.SIGKILL)
            self._may_be_killed_early.add(number)
            self.kills += 1

    def kill_early(self, number: int) -> None:
        """Send SIGKILL to a member that joins its groups, restores its state, or has not applied an event yet.

        Do this only once after each call of `kill`, so that the member can apply events.
        """
        member = self._members[number]
        if number in self._may_be_killed_early and member.has_logged(JOINING.encode()):
            member.signal_now(signal.SIGKILL)
            self._may_be_killed_early.discard(number)
            self.early_kills += 1

    def pause(self, number: int, seconds: float, stop: Flag) -> None:
        """Suspend a member with SIGSTOP for `seconds` or until the flag is set, and continue it with SIGCONT."""
        self._members[number].signal_now(signal.SIGSTOP)
        self.pauses += 1
        stop.wait(seconds)
        self._members[number].signal_now(signal.SIGCONT)

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
            if base_strategy(strategy) in STORES_POSITIONS:
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

    def count_effects(self, ledger: Ledger, deliveries: Sequence[Delivery]) -> tuple[EffectCounts, ...]:
        """Return the counts of the effects of each strategy. Call `drain` first."""
        return tuple(
            count_effects(strategy, ledger, self._read_effects(strategy), deliveries)
            for strategy in self._settings.strategies
        )

    def _read_effects(self, strategy: str) -> list[Delivery]:
        group = self._settings.group(strategy)
        if strategy in SENDS_EFFECTS:
            return effects_topic.read_effects(self._place.kafka, group)
        return tables.read_effects(self._place.dsn, group)

    def stop(self, ledger: Ledger) -> list[str]:
        """Stop the members. Return the differences between their latest states and the ledger. Call `drain` first."""
        stop_all(self._members)
        numbers = range(len(self._members))
        for number in numbers:
            if self._members[number].exit_code != 0:  # a client was stuck, or the process had just been started
                self._members[number] = self._stop_again(number)
        return [text for number in numbers for text in latest_states.differences(ledger, self._files, number)]

    def _stop_again(self, number: int) -> ProcessComponent:
        """Start and stop a member that ended with an error, so that it writes its latest states."""
        member = self._start(number)
        try:
            wait_for(f"member {number} to start", partial(_joins, member), seconds=READY_TIMEOUT_S, interval=0.1)
        finally:
            member.stop()
        return member


def _joins(member: ProcessComponent) -> Observation[bool]:
    return Observation(member.has_logged(JOINING.encode()) or None, f"exit code {member.exit_code}")
