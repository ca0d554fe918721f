"""Log compaction by the broker: the tables are the same as without compaction.

The topic has the settings of outbox-kit's topics. It contains aborted transactions and records sent again, has
segments that close immediately, and a cleaner with short pauses. One case also removes tombstones immediately.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
import requests
from confluent_kafka import Message, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from psycopg.rows import dict_row
from pyspark.sql import SparkSession
from tests.integration.materialization.warehouse import warehouse
from tests.integration.support import read_all
from tests.spark import oracle
from tests.spark.kafka_log import Record, framed, sequence

from outbox_events.http_session import HttpEndpoint
from outbox_events.waiting import Observation, wait_for
from outbox_kit.pipeline import Kafka
from outbox_kit.stack import StackState
from outbox_kit.stack.services.kafka import NODE_ID
from outbox_spark.jobs.model import MaterializeJob, Outcome
from outbox_spark.kafka.offset_ranges import describe
from outbox_spark.runs.materialize_table import materialize

SCHEMA = {"type": "record", "name": "Thing", "fields": [{"name": "n", "type": "int"}]}
PARTITIONS = 2
KEYS = [f"key-{number}" for number in range(12)]
BATCH_RECORDS = 60
COMPACT_SECONDS = 60
REQUEST_SECONDS = 10
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@dataclass
class Topic:
    """A topic of the stack's broker, and all records that were committed to it."""

    name: str
    state: StackState
    schema_id: int
    producer: Producer
    records: list[Record] = field(default_factory=list)
    commit: int = 0

    def events(self, keys: Sequence[str], kinds: Sequence[str] = "uuuud") -> list[tuple[str, int, bool]]:
        """Return new changes and deletions as (key, commit, whether the key exists afterwards)."""
        rng = random.Random(self.commit)  # noqa: S311
        actual = [(key, self.commit + n, rng.choice(kinds) == "u") for n, key in enumerate(keys, start=1)]
        self.commit += len(actual)
        return actual

    def send(self, events: Sequence[tuple[str, int, bool]], *, abort: bool = False) -> None:
        """Send events in one transaction."""
        sent: list[Record] = []
        self.producer.begin_transaction()
        for key, commit, there in events:
            state = {"n": commit} if there else None
            value = framed(SCHEMA, self.schema_id, state) if state else None

            def delivered(
                error: object,
                message: Message,
                of: tuple[str, int, dict[str, int] | None, bytes | None] = (key, commit, state, value),
            ) -> None:
                assert error is None
                sent.append(record_at(message, *of))

            headers: list[tuple[str, Any]] = [("source_sequence", sequence(commit).encode())]
            self.producer.produce(self.name, value, key, headers=headers, on_delivery=delivered)
        self.producer.flush(REQUEST_SECONDS)
        if abort:
            self.producer.abort_transaction(REQUEST_SECONDS)
        else:
            self.producer.commit_transaction(REQUEST_SECONDS)
            self.records += sent

    def available(self) -> set[oracle.RecordLocation]:
        """Return the partition and offset of every record that consumers can read."""
        kafka = Kafka(bootstrap_servers=self.state.kafka)
        return {(m.partition() or 0, m.offset() or 0) for m in read_all(kafka, self.name, PARTITIONS)}

    def wait_for_compaction(self, removed: set[oracle.RecordLocation]) -> None:
        """Wait until the log cleaner has removed these records. New records close the segments that contain them."""

        def poll() -> Observation[bool]:
            self.send(self.events(["nudge-1", "nudge-2", "nudge-3", "nudge-4"], "u"))
            remaining = removed & self.available()
            return Observation(None if remaining else True, f"{len(remaining)} records are left")

        wait_for(f"the cleaner on {self.name}", poll, seconds=COMPACT_SECONDS)


def record_at(message: Message, key: str, commit: int, state: dict[str, int] | None, value: bytes | None) -> Record:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return Record(partition, offset, key.encode(), value, sequence(commit), state)


@pytest.fixture(scope="module")
def admin(state: StackState) -> Iterator[AdminClient]:
    """Set the pause of the broker's log cleaner to 0.1 s instead of 15 s."""
    client = AdminClient({"bootstrap.servers": state.kafka})

    def set_pause(operation: AlterConfigOpType) -> None:
        entry = ConfigEntry("log.cleaner.backoff.ms", "100", incremental_operation=operation)
        broker = ConfigResource(ResourceType.BROKER, str(NODE_ID), incremental_configs=[entry])
        for done in client.incremental_alter_configs([broker]).values():
            done.result(REQUEST_SECONDS)

    set_pause(AlterConfigOpType.SET)
    yield client
    set_pause(AlterConfigOpType.DELETE)


def make_topic(admin: AdminClient, state: StackState, name: str, delete_retention_ms: int) -> Topic:
    settings = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.001",
        "min.compaction.lag.ms": "0",
        "max.compaction.lag.ms": "100",
        "delete.retention.ms": str(delete_retention_ms),
    }
    new = NewTopic(name, PARTITIONS, 1, config=settings)
    admin.create_topics([new])[name].result(REQUEST_SECONDS)
    subject = f"{state.registry}/subjects/{name}-value/versions"
    answer = requests.post(subject, json={"schema": json.dumps(SCHEMA)}, timeout=REQUEST_SECONDS)
    assert answer.ok, answer.text
    producer = Producer(
        {
            "bootstrap.servers": state.kafka,
            "transactional.id": name,
            "partitioner": "murmur2_random",
            "linger.ms": 0,
            "log_level": 0,  # the producer is still open when the broker stops, and would log errors
        }
    )
    producer.init_transactions(REQUEST_SECONDS)
    return Topic(name, state, int(answer.json()["id"]), producer)


def run(spark: SparkSession, topic: Topic, table: str) -> Outcome:
    """Run the job in several batches."""
    state = topic.state
    target = warehouse(state)
    job = MaterializeJob(
        aggregate="thing",
        topic=topic.name,
        table=table,
        kafka={"bootstrap.servers": state.kafka},
        registry=HttpEndpoint(state.registry),
        target_name="warehouse",
        target=target,
    )
    outcome = materialize(spark, job, lambda _: None, BATCH_RECORDS)
    assert outcome.batches > 1
    return outcome


def rows(state: StackState, table: str) -> dict[str, tuple[dict[str, int], oracle.Version]]:
    with psycopg.connect(state.target, row_factory=dict_row) as connection:
        actual = connection.execute(f"select * from {table}").fetchall()  # type: ignore[arg-type]
    return {
        row["aggregate_id"]: ({"n": row["n"]}, (row["_sequence"], row["_partition_epoch"], row["_offset"]))
        for row in actual
    }


def first_half(topic: Topic) -> list[list[tuple[str, int, bool]]]:
    rng = random.Random(1)  # noqa: S311
    sent = [topic.events(rng.choices(KEYS, k=30)) for _ in range(3)]
    for events in sent:
        topic.send(events)
    topic.send([(key, 10**9, True) for key in KEYS], abort=True)
    return sent


def second_half(topic: Topic, sent: list[list[tuple[str, int, bool]]]) -> None:
    """Send the events of a connector that restarts at an earlier offset and continues."""
    rng = random.Random(2)  # noqa: S311
    topic.send(sent[-1])
    topic.send([(key, 10**9, False) for key in KEYS], abort=True)
    for _ in range(2):
        topic.send(topic.events(rng.choices(KEYS, k=30)))


def superseded(topic: Topic) -> tuple[set[oracle.RecordLocation], set[oracle.RecordLocation]]:
    """Return records that a later record of their key supersedes, and tombstones that are the latest record."""
    last = {(record.partition, record.key): record for record in topic.records}
    earlier = {oracle.ReadRecord(r).location for r in topic.records if r is not last[r.partition, r.key]}
    tombstones = {oracle.ReadRecord(r).location for r in last.values() if r.state is None}
    assert len(earlier) > 100
    assert tombstones
    return earlier, tombstones


def check(topic: Topic, *tables: str) -> None:
    """Check that each table equals the oracle's result for all committed records."""
    assert describe({"bootstrap.servers": topic.state.kafka}, topic.name).start_offsets == {0: 0, 1: 0}
    expected = oracle.expected(oracle.ReadRecord(record) for record in topic.records)
    expected_rows = {key: (row.state, row.version) for key, row in expected.rows.items()}
    assert expected.deleted
    for table in tables:
        assert rows(topic.state, table) == expected_rows


def test_compacted_topic_gives_the_table_of_the_whole_history(
    admin: AdminClient, state: StackState, spark: SparkSession
) -> None:
    topic = make_topic(admin, state, "compacted", delete_retention_ms=86_400_000)
    sent = first_half(topic)
    run(spark, topic, "compacted_early")
    second_half(topic, sent)
    earlier, _ = superseded(topic)
    topic.wait_for_compaction(earlier)
    run(spark, topic, "compacted_early")
    late = run(spark, topic, "compacted_late")
    assert late.records < len(topic.records) - 100
    check(topic, "compacted_early", "compacted_late")


def test_starts_a_table_after_tombstones_were_removed(
    admin: AdminClient, state: StackState, spark: SparkSession
) -> None:
    topic = make_topic(admin, state, "forgetful", delete_retention_ms=0)
    second_half(topic, first_half(topic))
    earlier, tombstones = superseded(topic)
    topic.wait_for_compaction(earlier | tombstones)
    run(spark, topic, "forgetful_late")
    check(topic, "forgetful_late")
