"""Random histories of a topic, with runs that stop or crash anywhere. After every commit, the table equals the oracle.

`make test` runs a few examples; `make fuzz` runs for OUTBOX_FUZZ_SECONDS. A failure prints the rules that led to it.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from itertools import count
from pathlib import Path
from types import FunctionType
from typing import Any

import hypothesis
import psycopg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from pyspark.sql import SparkSession
from tests.spark import oracle
from tests.spark.kafka_log import POISON, Log, Record, Schemas, framed, sequence
from tests.spark.table_under_test import Target, job_for

from outbox_spark.jobs.model import DeltaTarget, IcebergTarget, PostgresTarget, ReadRange, TableProgress
from outbox_spark.kafka.offset_ranges import TopicDescription, resolve_range
from outbox_spark.sinks import DeltaTable, IcebergTable, PostgresTable
from outbox_spark.sinks.delta.storage import DeltaStorage
from outbox_spark.sinks.iceberg.storage import IcebergStorage
from outbox_spark.sinks.lake import table as lake_table
from outbox_spark.sinks.lake.quarantine import Quarantine
from outbox_spark.sinks.lake.table import LakeTable
from outbox_spark.sinks.lake.tombstone_ledger import LEDGER_ID, Ledger

KEYS = "abcde"
MAX_CALLS = 40
"""Approximate number of calls of sink methods in a run. A crash occurs before or after one of them."""
MAX_PARTITIONS = 4
MAX_FIELDS = 3
REPLAYED = 8
LIMITS = ((lake_table._MAX_FILTERED_KEYS, lake_table._SMALL_ROWS), (lake_table._MAX_FILTERED_KEYS, 0), (0, 0))
"""Numbers of rows up to which a lake table filters by key, and up to which it uses the settings of small batches."""

changes = st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from("uuuudpm")), min_size=3, max_size=10)
shares = st.lists(st.sampled_from([0.0, 0.3, 0.7, 1.0]), min_size=MAX_PARTITIONS, max_size=MAX_PARTITIONS)
"""Of each partition."""


commits: Counter[str] = Counter()
"""Number of commits by sink, which shows how much a test run covers."""


class CrashError(Exception):
    """Simulates a crash of the driver."""


@contextmanager
def crash(sinks: Sequence[type], call: int, *, after: bool) -> Iterator[None]:
    """Crash the driver before or after the n-th call of a method of these classes."""
    calls = count()

    def crashing(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def wrapped(*arguments: object, **options: object) -> object:
            now = next(calls) == call
            if now and not after:
                raise CrashError
            result = method(*arguments, **options)
            if now:
                raise CrashError
            return result

        return wrapped

    with pytest.MonkeyPatch.context() as patch:
        for sink in sinks:
            methods = {name: method for kind in reversed(sink.__mro__) for name, method in vars(kind).items()}
            for name, method in methods.items():
                if isinstance(method, FunctionType) and not name.startswith("__"):
                    patch.setattr(sink, name, crashing(method))
        yield


class Machine(RuleBasedStateMachine):
    """A topic and its table."""

    def __init__(self, target: Target, *sinks: type) -> None:
        super().__init__()
        self.target, self.sinks = target, sinks
        self.log = Log("test.thing", partitions=2)
        self.originals: list[Record] = []
        """Records in the order of the source's commits. The log also contains copies of these records."""
        self.pending_replay: list[Record] = []
        """Records that a replay has not sent yet. A restarted connector sends them before new records."""
        self.schemas = Schemas({1: {"type": "record", "name": "Thing", "fields": [{"name": "f0", "type": "int"}]}}, 1)
        self.commits = count(1)
        self.committed: TableProgress | None = None
        self.read_records: list[oracle.ReadRecord] = []
        self.uncommitted_reads: list[oracle.ReadRecord] = []
        """Records that crashed runs have read, and that may be in the ledger and the quarantine."""
        self.minimum_end: dict[int, int] = {}
        self.quarantined: set[oracle.RecordLocation] = set()
        self.versions: dict[str, oracle.Version] = {}
        self.fields: list[str] = []
        self.limits = LIMITS[0]

    # --- changes of the topic

    @initialize(events=changes)
    def begin(self, events: list[tuple[str, str]]) -> None:
        self.produce(events, 0)

    @rule(events=changes, writer=st.integers(0, MAX_FIELDS))
    def produce(self, events: list[tuple[str, str]], writer: int) -> None:
        """Change, delete, write an unreadable value or a malformed sequence, with the latest or an earlier schema."""
        self.finish_replay()
        for key, kind in events:
            commit = next(self.commits)
            value, state = None, None
            if kind == "p":
                value, state = b"poison", POISON
            elif kind in "um":
                number = max(1, self.schemas.newest - writer)
                fields = [field["name"] for field in self.schemas.by_number[number]["fields"]]
                state = dict.fromkeys(fields, commit)
                value = framed(self.schemas.by_number[number], number, state)
            if kind == "m":
                self.originals.append(self.log.append(key, value, "z" * 38, POISON))
            else:
                self.originals.append(self.log.append(key, value, sequence(commit), state))

    @rule(back=st.integers(1, REPLAYED), now=st.integers(1, REPLAYED))
    def replay(self, back: int, now: int) -> None:
        """Restart the connector from an earlier WAL position, so that it sends some of the records again."""
        self.pending_replay = self.originals[-back:]
        self.send_again(now)

    def finish_replay(self) -> None:
        self.send_again(len(self.pending_replay))

    def send_again(self, number: int) -> None:
        for record in self.pending_replay[:number]:
            self.log.append(record.key, record.value, record.sequence, record.state)
        self.pending_replay = self.pending_replay[number:]

    @rule(upto=shares, tombstones=st.booleans())
    def compact(self, upto: list[float], tombstones: bool) -> None:
        """Compact the beginning of each partition.

        The last record of a key is retained. A tombstone is removed only after the table has read it. A replay is
        completed first, because min.compaction.lag.ms protects the records of an incomplete replay.
        """
        self.finish_replay()
        ends = self.log.end()
        limits = {p: int(end * upto[p]) for p, end in ends.items()}
        passed = self.committed.offsets if self.committed else {}
        last = {(r.partition, r.key): r.offset for r in self.log.records if r.offset < limits[r.partition]}

        def retained(record: Record) -> bool:
            if record.offset >= limits[record.partition]:
                return True
            if record.offset < last[record.partition, record.key]:
                return False
            old = record.offset < passed.get(record.partition, 0)
            return not (tombstones and old and record.value is None)

        self.log.records = [record for record in self.log.records if retained(record)]

    @precondition(lambda self: self.log.partitions < MAX_PARTITIONS)
    @rule()
    def add_partitions(self) -> None:
        """Add a partition, so that keys change their partitions."""
        self.log.partitions += 1

    @precondition(lambda self: self.schemas.newest < MAX_FIELDS)
    @rule()
    def evolve(self) -> None:
        """Add a field with a default to the schema."""
        number = self.schemas.newest
        schema = self.schemas.by_number[number]
        fields = [*schema["fields"], {"name": f"f{number}", "type": "int", "default": -number}]
        self.schemas = Schemas({**self.schemas.by_number, number + 1: {**schema, "fields": fields}}, number + 1)

    # --- runs of the job

    @rule(upto=shares)
    def run_to_a_cut(self, upto: list[float]) -> None:
        self.run_to(self.cut(upto))

    @rule(upto=shares, call=st.integers(0, MAX_CALLS), after=st.booleans())
    def crash_somewhere(self, upto: list[float], call: int, after: bool) -> None:
        read_range = self.cut(upto)
        try:
            with crash(self.sinks, call, after=after):
                self.target_run(read_range)
        except CrashError:
            committed = self.target.committed()
            if committed == self.committed:
                self.uncommitted_reads += [
                    oracle.ReadRecord(record, read_range.partition_epoch) for record in self.log.within(read_range)
                ]
                self.minimum_end = dict(read_range.end)
                self.check()
                return
        self.was_committed(read_range)

    @rule(limits=st.sampled_from(LIMITS))
    def change_limits_of_sizes(self, limits: tuple[int, int]) -> None:
        """Treat the following batches as small, medium-sized or large."""
        self.limits = limits

    def cut(self, upto: list[float]) -> ReadRange:
        """Return a range from the committed offsets, at least to the end of the last crashed run."""
        ends = self.log.end()
        topic = TopicDescription(self.log.topic, self.log.topic_id, dict.fromkeys(ends, 0), end_offsets=ends)
        read_range = resolve_range(topic, self.committed)
        cut = {
            p: read_range.start[p] + round((end - read_range.start[p]) * upto[p]) for p, end in read_range.end.items()
        }
        return replace(read_range, end={p: max(end, self.minimum_end.get(p, 0)) for p, end in cut.items()})

    @rule()
    def run_to_the_end(self) -> None:
        self.run_to(self.cut([1.0] * MAX_PARTITIONS))

    def run_to(self, read_range: ReadRange) -> None:
        self.target_run(read_range)
        self.was_committed(read_range)

    def target_run(self, read_range: ReadRange) -> None:
        with pytest.MonkeyPatch.context() as patch, self.target.open() as table:
            patch.setattr(lake_table, "_MAX_FILTERED_KEYS", self.limits[0])
            patch.setattr(lake_table, "_SMALL_ROWS", self.limits[1])
            self.target.apply(table, table.committed(), read_range, self.log, self.schemas)

    def was_committed(self, read_range: ReadRange) -> None:
        batch = [oracle.ReadRecord(record, read_range.partition_epoch) for record in self.log.within(read_range)]
        self.read_records += batch
        self.quarantined |= oracle.quarantined(batch)
        self.minimum_end = {}
        locations = {item.location for item in self.read_records}
        self.uncommitted_reads = [item for item in self.uncommitted_reads if item.location not in locations]
        self.fields = [field["name"] for field in self.schemas.by_number[self.schemas.newest]["fields"]]
        run = 1 if self.committed is None else self.committed.run + 1
        self.committed = self.target.committed()
        commits[self.sinks[0].__name__] += 1
        assert self.committed is not None
        assert (self.committed.offsets, self.committed.run) == (read_range.end, run)
        assert self.committed.partition_epoch == read_range.partition_epoch
        self.check()

    # --- invariants

    def check(self) -> None:
        """Check that the table equals the oracle's result for the records that were read."""
        if self.committed is None:
            return
        expected = oracle.expected(self.read_records)
        rows = {row["aggregate_id"]: row for row in self.target.rows()}
        ahead = oracle.expected(
            [*self.read_records, *(r for r in self.uncommitted_reads if r.is_poison or r.record.state is None)]
        )
        for key in KEYS:
            allowed = [self.expected_row(expected, key)]
            if any(item.record.key == key.encode() for item in self.uncommitted_reads):
                # Ledger entries of a crashed run already apply to older records.
                allowed += [self.expected_row(ahead, key), *self.with_other_flag(expected, key)]
            actual = rows.get(key)
            assert (actual and ({n: actual[n] for n in self.fields}, version_of(actual), actual["_stale"])) in allowed
        assert set(rows) <= set(KEYS)
        self.check_versions(rows)
        self.check_companion_tables(expected)

    def expected_row(
        self, table: oracle.ExpectedTable, key: str
    ) -> tuple[dict[str, Any], oracle.Version, bool | None] | None:
        """Return the expected row, in which fields of later schemas have their defaults."""
        row = table.rows.get(key)
        if row is None:
            return None
        state = {name: row.state.get(name, -int(name[1:])) for name in self.fields}
        return (state, row.version, row.stale)

    def with_other_flag(self, table: oracle.ExpectedTable, key: str) -> list[Any]:
        row = self.expected_row(table, key)
        return [] if row is None else [(*row[:2], not row[2])]

    def check_versions(self, rows: dict[str, dict[str, Any]]) -> None:
        """Check that no key returns to an older version, not even after its deletion."""
        for key, row in rows.items():
            version = version_of(row)
            assert version >= self.versions.get(key, version)
            self.versions[key] = version

    def check_companion_tables(self, expected: oracle.ExpectedTable) -> None:
        if expected.deleted:
            ledger = self.ledger()
            for key, version in expected.deleted.items():
                assert ledger[key] >= version
                assert self.uncommitted_reads or ledger[key] == version
        if self.quarantined:
            places = {(row["_partition"], row["_offset"]) for row in self.target.rows("__quarantine")}
            assert self.quarantined <= places
            assert places <= {item.location for item in [*self.read_records, *self.uncommitted_reads] if item.is_poison}

    def ledger(self) -> dict[str, oracle.Version]:
        """Return the newest entry of each key."""
        rows = self.target.rows("__tombstones")
        with self.target.open() as table:
            if not isinstance(table, LakeTable):
                assert len(rows) == len({row["aggregate_id"] for row in rows})
                return {row["aggregate_id"]: version_of(row) for row in rows}
            # Entries are only added. Entries of older deletions and of crashed first runs are ignored.
            table.committed()
            entries = [row for row in rows if row[LEDGER_ID] == table._ledger.id]
        newest: dict[str, oracle.Version] = {}
        for row in entries:
            key = row["aggregate_id"]
            newest[key] = max(newest.get(key, version_of(row)), version_of(row))
        return newest

    def teardown(self) -> None:
        """Read to the end of the topic, so that the result does not depend on compaction."""
        self.finish_replay()
        self.run_to_the_end()
        whole = oracle.expected(oracle.ReadRecord(record) for record in self.originals)
        newest = {record.key.decode(): record for record in self.originals if record.key is not None}
        rows = {row["aggregate_id"]: row for row in self.target.rows()}
        for key, record in newest.items():
            # Compaction may have removed a valid record because of a later unreadable record.
            if record.state is not POISON:
                assert (key in rows) == (key in whole.rows)
                assert key not in rows or rows[key]["_sequence"] == whole.rows[key].version[0]


def version_of(row: dict[str, Any]) -> oracle.Version:
    return (row["_sequence"], row["_partition_epoch"], row["_offset"])


def run(factory: Callable[[], Machine], examples: int, steps: int) -> None:
    """Run a few fixed examples, or, for `make fuzz`, random examples for OUTBOX_FUZZ_SECONDS."""
    quick = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    if "OUTBOX_FUZZ_SECONDS" not in os.environ:
        run_state_machine_as_test(factory, settings=quick)
        return
    long = settings(
        quick,
        max_examples=int(os.environ.get("OUTBOX_FUZZ_EXAMPLES", "5")),
        stateful_step_count=30,
        derandomize=False,
        phases=[Phase.generate, Phase.shrink],
    )
    end = time.monotonic() + float(os.environ["OUTBOX_FUZZ_SECONDS"])
    first = int(os.environ.get("OUTBOX_FUZZ_SEED", str(time.time_ns() % 2**32)))
    for number in count(first):
        print(f"OUTBOX_FUZZ_SEED={number}", flush=True)
        seeded = hypothesis.seed(number)(factory)
        run_state_machine_as_test(seeded, settings=long)
        print(f"{dict(commits)} commits, all equal to the oracle", flush=True)
        if time.monotonic() > end:
            return


def test_postgres_equals_the_oracle_for_random_histories(
    spark: SparkSession, postgres: psycopg.conninfo.ConninfoDict
) -> None:
    numbers = count()

    def fresh() -> Machine:
        target = PostgresTarget(
            host=str(postgres["host"]),
            port=int(str(postgres["port"])),
            database=str(postgres["dbname"]),
            user=str(postgres["user"]),
            password=str(postgres["password"]),
            schema=f"machine_{next(numbers)}",
        )
        return Machine(Target(spark, job_for(target), postgres), PostgresTable)

    run(fresh, examples=2, steps=12)


@pytest.mark.long
def test_delta_equals_the_oracle_for_random_histories(spark: SparkSession, tmp_path: Path) -> None:
    numbers = count()

    def fresh() -> Machine:
        target = Target(spark, job_for(DeltaTarget(str(tmp_path / str(next(numbers))))))
        return Machine(target, DeltaTable, DeltaStorage, Ledger, Quarantine)

    run(fresh, examples=2, steps=10)


@pytest.mark.long
def test_iceberg_equals_the_oracle_for_random_histories(spark: SparkSession, tmp_path: Path) -> None:
    numbers = count()
    catalog = {"type": "hadoop", "warehouse": str(tmp_path)}

    def fresh() -> Machine:
        target = Target(spark, job_for(IcebergTarget(f"machine_{next(numbers)}", catalog)))
        return Machine(target, IcebergTable, IcebergStorage, Ledger, Quarantine)

    run(fresh, examples=2, steps=10)
