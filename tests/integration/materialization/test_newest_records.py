"""Reading without superseded records returns fewer rows, but leads to the same result as reading all records."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark import InheritableThread, StatusTracker
from pyspark.sql import Row, SparkSession
from tests.spark.spark_kafka import read_records, select_columns

from outbox_events.errors import ConfigurationError, UnreachableError
from outbox_events.waiting import Observation, wait_for
from outbox_kit.stack import StackState
from outbox_spark.jobs.model import ReadRange, RecordFormat
from outbox_spark.kafka import record_reader
from outbox_spark.kafka.offset_ranges import describe, resolve_range
from outbox_spark.kafka.record_reader import COLUMNS, read_every, read_newest
from outbox_spark.runs.newest_per_key import newest_per_key
from outbox_spark.session.error_redaction import redacted

PARTITIONS = 3
UNLIMITED = 1 << 30
MAX_LONG = 2**63 - 1
Headers = list[tuple[str, str | bytes | None]]

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


class Topic:
    """A topic for one test."""

    def __init__(self, spark: SparkSession, state: StackState) -> None:
        self.spark = spark
        self.kafka = {"bootstrap.servers": state.kafka}
        self.name = f"newest.{uuid.uuid4().hex[:8]}"
        self.admin = AdminClient(dict(self.kafka))
        settings = {"message.timestamp.after.max.ms": str(MAX_LONG)}
        self.admin.create_topics([NewTopic(self.name, PARTITIONS, 1, config=settings)])[self.name].result(30)
        self._producer = Producer({**self.kafka, "linger.ms": 5})
        wait_for(f"leaders of {self.name}", self._poll_leaders, seconds=30)

    def _poll_leaders(self) -> Observation[bool]:
        """Check whether all partitions have leaders, which the broker elects after it has created the topic."""
        try:
            describe(self.kafka, self.name)
        except (ConfigurationError, UnreachableError) as error:
            return Observation(None, str(error))
        return Observation(True, "led")

    def send(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | None = None,
        partition: int = 0,
        millis: int = 0,
    ) -> None:
        """Send a record. Its Kafka timestamp is the current time if `millis` is 0."""
        self._producer.produce(self.name, value, key, partition, timestamp=millis, headers=headers or [])

    def range(self) -> ReadRange:
        assert self._producer.flush(30) == 0
        return resolve_range(describe(self.kafka, self.name), None)

    def newest(self, limit: int = UNLIMITED) -> list[Row]:
        return list(read_newest(self.spark, self.kafka, self.range(), limit).collect())


@pytest.fixture
def topic(spark: SparkSession, state: StackState) -> Iterator[Topic]:
    created = Topic(spark, state)
    yield created
    created.admin.delete_topics([created.name])[created.name].result(30)


MALFORMED = [b"malformed", bytes(38), b"z" * 38, b"0001_0000000000000003-000000000000000A", b"0" * 38]


def sequence(number: int) -> Headers:
    return [("event_type", b"Changed"), ("source_sequence", f"0001_{number:016x}-{number:016x}".encode())]


def by_key(rows: list[Row]) -> dict[bytes, dict[str, Any]]:
    actual = {bytes(row["key"]): row.asDict() for row in rows}
    assert len(actual) == len(rows)
    return actual


def test_keeps_the_newest_record_per_key_and_counts_all(topic: Topic) -> None:
    for key, value, headers in [
        (b"a", b"x", sequence(1)),
        (b"b", b"y", []),
        (b"a", b"newest", sequence(3)),
        (b"a", b"replayed", sequence(2)),
        *[(b"b", b"z", [("source_sequence", value)]) for value in MALFORMED],
    ]:
        topic.send(key, value, headers)
    actual = sorted(topic.newest(), key=lambda row: row["offset"])
    assert actual[0].__fields__ == COLUMNS
    assert [
        (row["value"], row["offset"], row["sequence"], row["__outbox_records"], row["__outbox_kinds"]) for row in actual
    ] == [
        (b"y", 1, None, 1, 0b001),
        (b"newest", 2, sequence(3)[1][1], 3, 0b010),
        *[(b"z", 4 + index, None, 1, 0b100) for index in range(len(MALFORMED))],
    ]


@pytest.mark.parametrize("limit", [0, UNLIMITED])
def test_required_header_is_malformed_if_it_is_missing(topic: Topic, limit: int) -> None:
    for headers in (sequence(1), [], [("source_sequence", None)]):
        topic.send(b"a", b"v", headers)
    read = topic.range()
    rows = read_newest(topic.spark, topic.kafka, read, limit, requires_sequence=True).orderBy("offset").collect()
    assert [(row["offset"], row["__outbox_records"], row["__outbox_kinds"]) for row in rows] == [
        (0, 1, 0b010),
        (1, 1, 0b100),
        (2, 1, 0b100),
    ]


def test_keeps_the_last_copy_of_equal_versions(topic: Topic) -> None:
    for value in (b"first", b"second", None):
        topic.send(b"a", value, sequence(7))
    topic.send(b"a", b"without", [])
    assert [(row["value"], row["offset"]) for row in topic.newest()] == [(None, 2)]


def test_keeps_headers_that_name_a_schema(topic: Topic) -> None:
    topic.send(b"a", b"v", [("__value_schema_id", b"old"), ("__key_schema_id", b"k"), ("__value_schema_id", b"new")])
    topic.send(b"b", b"v", [("__value_schema_id", None)])
    actual = by_key(topic.newest())
    assert (actual[b"a"]["id_header"], actual[b"a"]["key_id_header"]) == (b"new", b"k")
    assert (actual[b"b"]["id_header"], actual[b"b"]["key_id_header"]) == (None, None)


def test_keeps_all_records_without_a_key(topic: Topic) -> None:
    for _ in range(3):
        topic.send(None, b"x", sequence(1))
    assert [row["__outbox_records"] for row in topic.newest()] == [1, 1, 1]


def test_flushes_a_full_hash_table_without_data_loss(topic: Topic) -> None:
    for number in range(1_000):
        topic.send(b"key-%d" % (number // 5 % 10), bytes(100), sequence(number))
    actual = topic.newest(limit=2_000)
    assert 10 < len(actual) < 1_000
    assert sum(row["__outbox_records"] for row in actual) == 1_000


def test_passes_records_through_when_none_is_superseded(topic: Topic) -> None:
    for number in range(9_000):
        topic.send(b"key-%d" % (number % 4_500), b"v", sequence(number))
    assert len(topic.newest(limit=100_000)) == 9_000
    assert len(topic.newest()) == 4_500  # more than the initial size of the hash table


@pytest.mark.parametrize("limit", [2_000, UNLIMITED])
@pytest.mark.parametrize("headers", [True, False])
def test_result_equals_reading_every_record(topic: Topic, limit: int, headers: bool) -> None:
    """The logs are random, with replays, tombstones, no keys, keys in several partitions, and additional headers."""
    random_ = random.Random(limit)  # noqa: S311 - repeatable
    for number in range(600):
        commit = max(0, number - random_.choice([0, 0, 0, 40]))
        key = random_.choice([None, *(b"key-%d" % n for n in range(40))])
        value = None if random_.random() < 0.1 else random_.randbytes(random_.randrange(60))
        topic.send(key, value, sequence(commit) if headers else [], partition=random_.randrange(PARTITIONS))
    read = topic.range()
    all_records = select_columns(read_records(topic.spark, topic.kafka, read))
    assert all_records.count() == 600
    newest_records = read_newest(topic.spark, topic.kafka, read, limit)
    assert newest_records.count() < 600
    results = [
        newest_per_key(frame, 0, key_format=RecordFormat.TEXT).collect() for frame in (all_records, newest_records)
    ]
    assert sorted(map(repr, results[0])) == sorted(map(repr, results[1]))


def test_several_tasks_read_one_partition(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets of transaction markers and aborted records are between the records of the ranges."""
    monkeypatch.setattr(record_reader, "SMALL_OFFSETS", 10)
    monkeypatch.setattr(record_reader, "MAX_TASK_OFFSETS", 17)
    producer = Producer({**topic.kafka, "transactional.id": topic.name})
    producer.init_transactions(30)
    expected = []
    for number in range(30):
        producer.begin_transaction()
        for index in range(3):
            producer.produce(topic.name, f"{number} {index}", b"key-%d" % (number % 7), partition=0)
        if number % 4 == 0:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
            expected += [f"{number} {index}".encode() for index in range(3)]
    rows = read_every(topic.spark, topic.kafka, topic.range())
    assert rows.rdd.getNumPartitions() >= 7
    assert [bytes(row["value"]) for row in rows.orderBy("offset").collect()] == expected
    newest = by_key(newest_per_key(read_newest(topic.spark, topic.kafka, topic.range()), 0).collect())
    assert sum(row["__outbox_records"] for row in newest.values()) == len(expected)


def test_returns_every_record_for_any_timestamp(topic: Topic) -> None:
    """Spark's reader fails on timestamps that overflow in microseconds, so a table could not pass such a record."""
    for value, millis in ((b"a", 1), (b"b", MAX_LONG // 2), (None, 2)):
        topic.send(b"k", value, sequence(1), millis=millis)
    actual = read_every(topic.spark, topic.kafka, topic.range()).selectExpr("offset", "unix_micros(timestamp) AS t")
    assert {row["offset"]: row["t"] for row in actual.collect()} == {0: 1_000, 1: MAX_LONG // 1_000 * 1_000, 2: 2_000}


def test_reads_exactly_the_requested_offsets(topic: Topic) -> None:
    for number in range(30):
        topic.send(b"key-%d" % number, b"v", [], partition=number % PARTITIONS)
    full_range = topic.range()
    partial_range = ReadRange(full_range.topic, full_range.topic_id, 0, {0: 2, 1: 0, 2: 10}, {0: 5, 1: 1, 2: 10})
    actual = read_newest(topic.spark, topic.kafka, partial_range).collect()
    assert sorted((row["partition"], row["offset"]) for row in actual) == [(0, 2), (0, 3), (0, 4), (1, 0)]


def test_rejects_a_range_below_the_log_start(topic: Topic) -> None:
    for number in range(10):
        topic.send(b"key-%d" % number, b"v")
    read = topic.range()
    topic.admin.delete_records([TopicPartition(topic.name, 0, 4)])[TopicPartition(topic.name, 0)].result(30)
    with pytest.raises(Exception) as raised:  # noqa: PT011 - the message is checked
        read_newest(topic.spark, topic.kafka, read).collect()
    assert "OffsetOutOfRangeException" in str(redacted(raised.value))


def test_times_out_when_the_broker_sends_nothing(topic: Topic) -> None:
    topic.send(b"a", b"v")
    read = topic.range()
    range_beyond_end = ReadRange(read.topic, read.topic_id, 0, dict(read.start), {**read.end, 0: 5})
    with pytest.raises(Exception, match=r"no record .* offset 1 arrived within 1 s; the range ends at offset 5"):
        read_newest(topic.spark, topic.kafka, range_beyond_end, timeout_millis=1_000).collect()


def test_topic_that_is_deleted_while_it_is_read_is_named(topic: Topic) -> None:
    topic.send(b"a", b"v")
    read = topic.range()
    range_beyond_end = ReadRange(read.topic, read.topic_id, 0, dict(read.start), {**read.end, 0: 5})
    rows = read_newest(topic.spark, topic.kafka, range_beyond_end)
    topic.admin.delete_topics([topic.name])[topic.name].result(30)
    started = time.monotonic()
    try:
        with pytest.raises(Exception, match="was deleted") as raised:
            rows.collect()
    finally:
        topic.admin.create_topics([NewTopic(topic.name, 1, 1)])[topic.name].result(30)  # for the fixture
    assert time.monotonic() - started < 30
    error = redacted(raised.value)  # type: ignore[arg-type]
    assert (error.message, error.transient) == (f"topic {topic.name} was deleted while it was read", False)


def test_cancelled_task_ends(topic: Topic, spark: SparkSession) -> None:
    """The task waits for records that never arrive. Cancelling the job ends the task."""
    topic.send(b"a", b"v", sequence(1))
    read = topic.range()
    range_beyond_end = replace(read, end={partition: offset + 1 for partition, offset in read.end.items()})
    group, state = f"cancelled {topic.name}", spark.sparkContext.statusTracker()
    ended: list[BaseException] = []

    def run_job() -> None:
        spark.sparkContext.setJobGroup(group, group, interruptOnCancel=True)
        try:
            read_newest(spark, topic.kafka, range_beyond_end, timeout_millis=10**7).collect()
        except Exception as error:  # any error shows that the job was cancelled
            ended.append(error)

    thread = InheritableThread(target=run_job, session=spark)
    thread.start()
    running = wait_for("the job to run", lambda: _running(state, group), seconds=60)
    spark.sparkContext.cancelJobGroup(group)
    wait_for("its tasks to end", lambda: _ended(state, running), seconds=60)
    thread.join(60)
    assert len(ended) == 1


def _running(state: StatusTracker, group: str) -> Observation[int]:
    """Return the stage that has active tasks."""
    for job in state.getJobIdsForGroup(group):
        for stage in (info.stageIds for info in [state.getJobInfo(job)] if info):
            for number in stage:
                actual = state.getStageInfo(number)
                if actual and actual.numActiveTasks:
                    return Observation(number, "at work")
    return Observation(None, "no task yet")


def _ended(state: StatusTracker, stage: int) -> Observation[bool]:
    actual = state.getStageInfo(stage)
    active = actual.numActiveTasks if actual else 0
    return Observation(None, f"{active} tasks at work") if active else Observation(True, "none")
