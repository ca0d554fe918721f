"""Run one cell: start the writers and the observer, inject the fault, and judge one way of sending."""

from __future__ import annotations

import random
import time
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from threading import Event as Flag
from typing import Any

import psycopg
from confluent_kafka import KafkaException

from outbox_events.errors import OutboxError, WaitTimeoutError
from outbox_events.waiting import Observation, wait_for
from outbox_lab.drill import accounts, materialization
from outbox_lab.drill.components import STOP_TIMEOUT_S, ProcessComponent, start_module
from outbox_lab.drill.faults import Fault, inject, prepared
from outbox_lab.drill.ledger import Ledger, LedgerFile, Outcome
from outbox_lab.drill.observer import Observer, complete, read_deliveries
from outbox_lab.drill.project import PARTITIONS
from outbox_lab.drill.provenance import machine
from outbox_lab.drill.receivers.effects import EffectCounts
from outbox_lab.drill.receivers.receivers import Place, Receivers
from outbox_lab.drill.receivers.strategies import STRATEGIES
from outbox_lab.drill.senders.catalogue import open_sender
from outbox_lab.drill.skipped_markers import partitions_without_markers
from outbox_lab.drill.stack import DrillStack
from outbox_lab.drill.verdict import Verdict, count_by_fault, delays_over_time, find, judge
from outbox_lab.drill.ways.catalogue import way_named
from outbox_lab.drill.ways.way import Deployed, Promise, Way
from outbox_lab.drill.writer import Writer, WriterSettings, writer_name

START_S = 60
RECOVERY_S = 90
DRAIN_S = 120
# If the way does not promise delivery, the cell ends when no new record has arrived for this time.
QUIET_S = 5
# Wait after the last missing event, because duplicates and phantoms can still arrive.
SETTLE_S = 2
CHART_POINTS = 240
STATUSES = {"committed": Outcome.COMMITTED, "aborted": Outcome.ROLLED_BACK}


@dataclass(frozen=True)
class Load:
    """Load of a cell. `seconds` is its duration, not counting recoveries. `rate` is in transactions per second."""

    seconds: float = 20
    rate: float = 60
    writers: int = 4
    accounts: int = 200


@dataclass(frozen=True)
class CellSettings:
    """Settings of a cell. `seed` is the seed of the run. `injections` is how many times the fault is injected."""

    way_name: str
    fault: Fault
    seed: int
    repetition: int = 1
    injections: int = 1
    load: Load = Load()
    materialize: bool = False
    receive: bool = False

    @property
    def way(self) -> type[Way]:
        """Way of sending. The field is its name, because the classes of some ways cannot be passed to a process."""
        return way_named(self.way_name)

    @property
    def strategies(self) -> tuple[str, ...]:
        """Strategies of the receivers. Empty if the fault restores the server that contains their database."""
        if self.fault.restores_database:
            return ()
        return self.way.strategies or (tuple(STRATEGIES) if self.receive else ())

    @property
    def name(self) -> str:
        """Name of the cell, which is also part of the names of its topics, slot and tables."""
        return f"{self.way.name}_{self.fault.name}_{self.repetition}".replace("-", "_")


@dataclass(frozen=True)
class FaultTimes:
    """Times of a fault injection, in seconds since the epoch. At `recovered_at`, a later event was delivered."""

    started_at: float
    ended_at: float
    recovered_at: float | None


@dataclass(frozen=True)
class CellResult:
    """Result of a cell, which is written to a JSON file."""

    way: str
    fault: str
    seed: int
    repetition: int
    injections: int
    load: dict[str, Any]
    started_at: float
    seconds: float
    verdict: Verdict
    recovery_s: list[float | None]
    fault_spans: list[tuple[float, float]]
    delays: list[tuple[float, float]]
    tables_equal: bool | None
    note: str
    detected: str = ""
    """Checks of `outbox verify` that failed after a fault that needs a repair, each with its observation."""
    receiver_kills: int = 0
    receiver_early_kills: int = 0
    """Kills of members that had not applied an event yet."""
    receiver_pauses: int = 0
    effects: tuple[EffectCounts, ...] = ()
    """Effects of the receivers, with one entry for each strategy."""
    partitions_without_markers: tuple[str, ...] = ()
    """Partitions to which the broker did not write a transaction marker. Most promises are then not judged."""
    latest_states_equal: bool | None = None
    """Whether the latest states of the receivers equal the ledger, or None if no receivers ran."""
    lost_by_fault: tuple[int, ...] = ()
    """Number of lost events for each injection."""
    phantom_by_fault: tuple[int, ...] = ()
    commit: str = ""
    machine: str = ""


class Cell:
    """Runs one cell."""

    def __init__(self, drill: DrillStack, settings: CellSettings) -> None:
        self._drill = drill
        self._settings = settings
        self._way = settings.way(drill, settings.name)
        self._rng = random.Random(f"{settings.seed}/{settings.name}")  # noqa: S311 - not a secret
        self._notes: list[str] = []
        self._detected = ""

    def run(self) -> CellResult:
        """Run the cell. Raises OutboxError if the way of sending cannot be deployed or a component does not recover."""
        started_at = time.time()
        with self._drill.connect_to_database() as connection:
            accounts.prepare(connection, self._settings.load.accounts)
        with (
            prepared(self._settings.fault, self._drill),
            self._way.deployed() as deployed,
            self._observer(deployed.topic) as observer,
            self._receivers(deployed.topic) as receivers,
        ):
            with self._writers(deployed) as writers, receivers.disturbed():
                deployed.components = {**self._drill.services, **deployed.components, "writer": writers}
                times = self._load(observer, deployed)
            if writers.was_killed:
                self._notes.append(f"the writer had not ended {STOP_TIMEOUT_S} s after SIGTERM, and was killed")
            is_recovered = self._recover(deployed)
            ledger = self._resolved_ledger()
            if is_recovered:
                self._drain(observer, ledger)
            deliveries, missed = complete(observer, self._drill.kafka, deployed.topic)
            self._notes += [missed] if missed else []
            tables_equal = self._materialize(deployed, ledger)  # meanwhile, the receivers read the rest of the topic
            self._notes += receivers.drain(deliveries)
            effects = receivers.count_effects(ledger, deliveries)
            states = receivers.stop(ledger)
            self._notes += states
            unmarked = tuple(self._partitions_without_markers())
            if unmarked:
                self._notes.append(f"the broker wrote no transaction marker to {', '.join(unmarked)} (KAFKA-20734)")
        is_restore = self._settings.fault.restores_database
        found, ends = find(ledger, deliveries, is_restore=is_restore), [at.recovered_at or at.ended_at for at in times]
        return CellResult(
            way=self._settings.way.name,
            fault=self._settings.fault.name,
            seed=self._settings.seed,
            repetition=self._settings.repetition,
            injections=len(times),
            load=asdict(self._settings.load),
            started_at=started_at,
            seconds=round(time.time() - started_at, 1),
            verdict=judge(ledger, deliveries, partitions=PARTITIONS, is_restore=is_restore),
            recovery_s=[_recovery(entry) for entry in times],
            fault_spans=[(entry.started_at, entry.ended_at) for entry in times],
            delays=_thinned(delays_over_time(ledger, deliveries)),
            tables_equal=tables_equal,
            note="; ".join(self._notes),
            detected=self._detected,
            receiver_kills=receivers.kills,
            receiver_early_kills=receivers.early_kills,
            receiver_pauses=receivers.pauses,
            effects=effects,
            partitions_without_markers=unmarked,
            latest_states_equal=None if not effects else not states,
            lost_by_fault=count_by_fault(ledger, found.lost, ends),
            phantom_by_fault=count_by_fault(ledger, found.phantom, ends),
            commit=self._drill.project.commit,
            machine=machine(),
        )

    def _observer(self, topic: str) -> Observer:
        return Observer(self._drill.kafka, topic, self._drill.state.postgres)

    def _receivers(self, topic: str) -> Receivers:
        settings = self._settings
        if settings.receive and not settings.strategies:
            self._notes.append("receivers did not run, because their database is on the restored server")
        place = Place(self._drill.kafka, self._drill.state.target, topic, self._drill.logs, settings.name)
        return Receivers(place, f"{settings.seed}/{settings.name}/receivers", settings.strategies)

    @property
    def _promise(self) -> Promise:
        return self._settings.way.promise_under(self._settings.fault)

    @property
    def _ledger_file(self) -> Path:
        return self._drill.logs / f"{self._settings.name}.ledger"

    def _writer_settings(self, deployed: Deployed) -> WriterSettings:
        load = self._settings.load
        return WriterSettings(
            dsn=self._drill.state.postgres if deployed.pipeline_file else self._drill.proxied_dsn(),
            ledger=str(self._ledger_file),
            sender=deployed.sender,
            accounts=load.accounts,
            writers=load.writers,
            rate=load.rate,
            seed=f"{self._settings.seed}/{self._settings.name}",
        )

    def _writers(self, deployed: Deployed) -> ProcessComponent:
        self._ledger_file.unlink(missing_ok=True)
        settings, log = self._writer_settings(deployed), self._drill.logs / f"{self._settings.name}.writer.log"
        return start_module("outbox_lab.drill.writer", settings, self._drill.project.folder, log)

    def _load(self, observer: Observer, deployed: Deployed) -> list[FaultTimes]:
        """Wait for the duration of the load while the writers run, and inject the faults during this time."""
        self._wait_for_delivery(observer, time.time(), START_S)
        load_s, times = self._settings.load.seconds, []
        end = time.monotonic() + load_s
        if not self._settings.fault.is_none:
            time.sleep(load_s * self._rng.uniform(0.2, 0.5))
            for _ in range(self._settings.injections):
                times.append(self._inject(observer, deployed))
                time.sleep(self._rng.uniform(0.2, 2.0))
        time.sleep(max(0.0, end - time.monotonic()))
        return times

    def _inject(self, observer: Observer, deployed: Deployed) -> FaultTimes:
        started_at = time.time()
        inject(self._settings.fault, deployed.components, self._drill, deployed.deployment)
        ended_at = time.time()
        if self._settings.fault.needs_repair:
            self._detected = self._way.detected()
            self._notes += self._way.repair()
            if self._way.lacks_states():
                self._write_states(deployed)
        return FaultTimes(started_at, ended_at, self._recovered_at(observer, deployed.topic, ended_at))

    def _recovered_at(self, observer: Observer, topic: str, ended_at: float) -> float | None:
        """Wait until an event that was written after the fault is delivered, and return the time of this delivery.

        If only a second reader receives the event, return an upper bound. If nothing is delivered, return None.
        """
        start = self._ledger_file.stat().st_size
        try:
            return self._wait_for_delivery(observer, ended_at, RECOVERY_S)
        except WaitTimeoutError as error:
            self._notes.append(f"{error.message}; {self._way.state()}")
        with suppress(OutboxError):  # a broker that does not respond has not recovered
            later_ids = self._events_after(ended_at, start)
            if any(delivery.event_id in later_ids for delivery in read_deliveries(self._drill.kafka, topic)):
                self._notes.append("a second reader read later events, so the recovery time is an upper bound")
                return time.time()
        return None

    def _write_states(self, deployed: Deployed) -> None:
        """Write all states again, as services must do after a repair that leaves topics without some states."""
        settings = self._writer_settings(deployed)
        try:
            with LedgerFile(self._ledger_file) as ledger:
                Writer(settings, settings.writers, ledger, Flag()).write_states()
        except psycopg.Error as error:
            self._notes.append(f"cannot write the states again: {type(error).__name__}")

    def _wait_for_delivery(self, observer: Observer, since: float, seconds: float) -> float:
        """Wait until an event that was written after `since` is delivered. Return the time of this delivery."""

        start = self._ledger_file.stat().st_size if self._ledger_file.exists() else 0

        def poll() -> Observation[float]:
            later_ids = self._events_after(since, start)
            found = [entry.received_at for entry in observer.deliveries if entry.event_id in later_ids]
            times = [at for at in found if at is not None]
            return Observation(min(times, default=None), f"none of {len(later_ids)} later events has been delivered")

        return wait_for(f"a delivery of {self._settings.way.name}", poll, seconds=seconds, interval=0.5)

    def _events_after(self, since: float, start: int) -> set[str]:
        """Read the ledger from byte `start`. Return the ids of the events that the writers logged after `since`."""
        if not self._ledger_file.exists():
            return set()
        transactions = Ledger.read(self._ledger_file, start=start).transactions.values()
        return {event.event_id for entry in transactions if entry.intended_at > since for event in entry.events}

    def _recover(self, deployed: Deployed) -> bool:
        """Run the recovery that each writer runs at its start. Return False if missing markers prevent a recovery.

        Raises WaitTimeoutError if a recovery keeps failing for another reason.
        """
        try:
            for number in range(self._settings.load.writers):
                name = writer_name(number)
                wait_for(f"the recovery of {name}", partial(self._recovered, deployed, name), seconds=RECOVERY_S)
        except WaitTimeoutError as error:
            if not self._partitions_without_markers():
                raise
            self._notes.append(error.message)
            return False
        return True

    def _partitions_without_markers(self) -> list[str]:
        return partitions_without_markers(self._drill.stack.layout, self._settings.name)

    def _recovered(self, deployed: Deployed, name: str) -> Observation[bool]:
        try:
            with (
                closing(open_sender(deployed.sender, name)) as sender,
                closing(self._drill.connect_to_database()) as connection,
            ):
                connection.autocommit = False
                sender.is_last = True
                sender.recover(connection)
        except (OutboxError, psycopg.Error, KafkaException) as error:
            return Observation(None, f"{type(error).__name__}: {error}")
        return Observation(True, "recovered")

    def _resolved_ledger(self) -> Ledger:
        """Read the ledger, correct it by the rows, and ask PostgreSQL for outcomes that are still unknown.

        A database that replaced another one assigns ids again, so there a transaction without rows was not committed.
        """
        ledger, is_replaced = Ledger.read(self._ledger_file), self._settings.fault.replaces_database
        with self._drill.connect_to_database() as connection:
            ledger.resolve_by_rows(accounts.entered_events(connection))
            for transaction in ledger.unknown():
                status = "aborted" if is_replaced else accounts.read_status(connection, transaction.xid)
                transaction.outcome = STATUSES.get(status, Outcome.UNKNOWN)
            ledger.remove(accounts.superseded_events(connection))
        return ledger

    def _drain(self, observer: Observer, ledger: Ledger) -> None:
        committed = list(ledger.events(Outcome.COMMITTED))
        seen = time.monotonic(), 0

        def poll() -> Observation[bool]:
            nonlocal seen
            missing, count = observer.missing(committed), len(observer.deliveries)
            if count != seen[1]:
                seen = time.monotonic(), count
            is_quiet = not self._promise.no_loss and time.monotonic() - seen[0] > QUIET_S
            return Observation(missing == 0 or is_quiet or None, f"{missing} of {len(committed)} events are missing")

        try:
            wait_for("the committed events", poll, seconds=DRAIN_S, interval=0.3)
        except WaitTimeoutError as error:
            self._notes.append(f"{error.message}; {self._way.state()}")
        time.sleep(SETTLE_S)

    def _materialize(self, deployed: Deployed, ledger: Ledger) -> bool | None:
        if not self._settings.materialize or deployed.pipeline_file is None:
            return None
        differences = materialization.differences(self._drill, deployed.pipeline_file, self._settings.name, ledger)
        self._notes += differences
        return not differences


def _recovery(times: FaultTimes) -> float | None:
    return None if times.recovered_at is None else round(times.recovered_at - times.ended_at, 2)


def _thinned(delays: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Divide the time into at most CHART_POINTS intervals, and return the largest delay of each interval."""
    if not delays:
        return []
    start, end = delays[0][0], delays[-1][0]
    width = max((end - start) / CHART_POINTS, 1e-9)
    largest: dict[int, tuple[float, float]] = {}
    for at, delay in delays:
        slot = int((at - start) / width)
        if slot not in largest or delay > largest[slot][1]:
            largest[slot] = (round(at, 3), round(delay, 3))
    return list(largest.values())
