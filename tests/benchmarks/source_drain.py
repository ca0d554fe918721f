"""One drain: a connector reads a slot that holds all rows, until a read_committed consumer could have them all."""

from __future__ import annotations

import time
from dataclasses import dataclass

from tests.benchmarks.meters import ReadableEnd, count_records, processor_seconds
from tests.benchmarks.stage import PARTITIONS, Stage
from tests.benchmarks.variants import Variant

EVERY_SECONDS = 0.02
# The end of a topic counts as the end once it stood still for this long; the count of records proves it afterwards.
STILL_SECONDS = 2.0
LIMIT_SECONDS = 600.0
# The start of a connector is not what is measured.
STARTED = 0.05


@dataclass(frozen=True)
class Drain:
    """Measurements of one drain, from STARTED on."""

    events: float
    seconds: float
    worker_processor: float
    broker_processor: float
    sender_processor: float
    from_resume: float
    bytes_per_value: float

    @property
    def rate(self) -> float:
        return self.events / self.seconds


@dataclass(frozen=True)
class Look:
    """The state at one moment: offsets that can be read, seconds of the clock and of three processes."""

    offsets: int
    clock: float
    worker: float
    broker: float
    sender: float


def drain(place: Stage, name: str, variant: Variant, base: str, rows: int) -> Drain:
    """Let one variant drain a copy of the slot `base`; raises where records are missing or too many."""
    unique = name.replace("-", "_")
    with (
        place.topic(f"bench.{unique}") as topic,
        place.slot(unique, copy_of=base) as lsn,
        place.connector(name, {**variant(place, topic), "slot.name": unique}, lsn),
    ):
        polls = _watch(place, name, topic, unique, rows)
        records, size = count_records(place.deployment.environment.kafka, topic, PARTITIONS)
        if records != rows:
            raise RuntimeError(f"{name}: {records} records of {rows} rows")
    return measured(polls, rows, size / rows)


def measured(looks: list[Look], rows: int, bytes_per_value: float) -> Drain:
    """From the first look that sees STARTED of the offsets to the first that sees all.

    Markers of transactions are spread evenly, so the share of offsets is the share of records.
    """
    final = looks[-1].offsets
    begin = next(look for look in looks if look.offsets >= STARTED * final)
    end = next(look for look in looks if look.offsets == final)
    return Drain(
        events=rows * (1 - begin.offsets / final),
        seconds=end.clock - begin.clock,
        worker_processor=end.worker - begin.worker,
        broker_processor=end.broker - begin.broker,
        sender_processor=end.sender - begin.sender,
        from_resume=end.clock - looks[0].clock,
        bytes_per_value=bytes_per_value,
    )


def _watch(place: Stage, name: str, topic: str, slot: str, rows: int) -> list[Look]:
    worker, broker = place.stack.pid("connect"), place.stack.pid("kafka")
    sender: int | None = None
    polls: list[Look] = []
    meter = ReadableEnd(place.deployment.environment.kafka, topic, PARTITIONS)
    deadline = time.perf_counter() + LIMIT_SECONDS
    changed = checked = time.perf_counter()
    try:
        while True:
            offsets, now = meter.offsets(), time.perf_counter()
            if sender is None and offsets:
                sender = walsender(place, slot)
            polls.append(
                Look(offsets, now, processor_seconds(worker), processor_seconds(broker), processor_seconds(sender))
            )
            if len(polls) == 1 or offsets != polls[-2].offsets:
                changed = now
            if offsets >= rows and now - changed > STILL_SECONDS:
                return polls
            if now > deadline:
                raise RuntimeError(f"{name}: {offsets} offsets of at least {rows} after {LIMIT_SECONDS:g} s")
            if now - checked > 1:
                place.refuse_failed(name)
                checked = now
            time.sleep(EVERY_SECONDS)
    finally:
        meter.close()


def walsender(place: Stage, slot: str) -> int | None:
    """Pid of the server's process that reads the slot for the connector."""
    with place.database() as connection:
        query = "select active_pid from pg_replication_slots where slot_name = %s"
        row = connection.execute(query, [slot]).fetchone()
    return row[0] if row else None
