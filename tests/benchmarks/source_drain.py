"""Measures one drain: a connector reads a slot with a backlog until a read_committed consumer can read all records."""

from __future__ import annotations

import time
from dataclasses import dataclass

from tests.benchmarks.benchmark_stack import PARTITIONS, BenchmarkStack
from tests.benchmarks.meters import StableOffsets, count_records, cpu_seconds
from tests.benchmarks.variants import Variant

POLL_SECONDS = 0.02
# A drain has ended when the end of the topic has not changed for this time. Then the number of records is checked.
UNCHANGED_SECONDS = 2.0
LIMIT_SECONDS = 600.0
# Share of the records that is excluded from the measurement, because it includes the start of the connector.
START_SHARE = 0.05


@dataclass(frozen=True)
class Drain:
    """Measurements of one drain, excluding the first START_SHARE of the records."""

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
class Poll:
    """State at one point in time: readable offsets, wall-clock seconds, and CPU seconds of three processes."""

    offsets: int
    clock: float
    worker: float
    broker: float
    sender: float


def drain(bench: BenchmarkStack, name: str, variant: Variant, base: str, rows: int) -> Drain:
    """Drain a copy of the slot `base` with one variant. Raises RuntimeError if records are missing or duplicated."""
    unique = name.replace("-", "_")
    with (
        bench.topic(f"bench.{unique}") as topic,
        bench.slot(unique, copy_of=base) as lsn,
        bench.connector(name, {**variant(bench, topic), "slot.name": unique}, lsn),
    ):
        polls = _poll_until_drained(bench, name, topic, unique, rows)
        records, size = count_records(bench.deployment.environment.kafka, topic, PARTITIONS)
        if records != rows:
            raise RuntimeError(f"{name}: {records} records of {rows} rows")
    return measured(polls, rows, size / rows)


def measured(polls: list[Poll], rows: int, bytes_per_value: float) -> Drain:
    """Return the measurements between the first polls with START_SHARE of the offsets and with all offsets.

    Transaction markers are distributed evenly, so the share of offsets equals the share of records.
    """
    final = polls[-1].offsets
    begin = next(poll for poll in polls if poll.offsets >= START_SHARE * final)
    end = next(poll for poll in polls if poll.offsets == final)
    return Drain(
        events=rows * (1 - begin.offsets / final),
        seconds=end.clock - begin.clock,
        worker_processor=end.worker - begin.worker,
        broker_processor=end.broker - begin.broker,
        sender_processor=end.sender - begin.sender,
        from_resume=end.clock - polls[0].clock,
        bytes_per_value=bytes_per_value,
    )


def _poll_until_drained(bench: BenchmarkStack, name: str, topic: str, slot: str, rows: int) -> list[Poll]:
    worker, broker = bench.stack.pid("connect"), bench.stack.pid("kafka")
    sender: int | None = None
    polls: list[Poll] = []
    stable_offsets = StableOffsets(bench.deployment.environment.kafka, topic, PARTITIONS)
    deadline = time.perf_counter() + LIMIT_SECONDS
    changed = checked = time.perf_counter()
    try:
        while True:
            offsets, now = stable_offsets.offsets(), time.perf_counter()
            if sender is None and offsets:
                sender = walsender(bench, slot)
            polls.append(Poll(offsets, now, cpu_seconds(worker), cpu_seconds(broker), cpu_seconds(sender)))
            if len(polls) == 1 or offsets != polls[-2].offsets:
                changed = now
            if offsets >= rows and now - changed > UNCHANGED_SECONDS:
                return polls
            if now > deadline:
                raise RuntimeError(f"{name}: {offsets} offsets of at least {rows} after {LIMIT_SECONDS:g} s")
            if now - checked > 1:
                bench.raise_if_failed(name)
                checked = now
            time.sleep(POLL_SECONDS)
    finally:
        stable_offsets.close()


def walsender(bench: BenchmarkStack, slot: str) -> int | None:
    """Return the pid of the walsender process of the slot."""
    with bench.database() as connection:
        query = "select active_pid from pg_replication_slots where slot_name = %s"
        row = connection.execute(query, [slot]).fetchone()
    return row[0] if row else None
