"""Changes of a table's topic: tombstones that are compacted before a run reads them, recreation, added partitions."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import fastavro
import psycopg
import pytest
import requests
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from msgspec import structs
from psycopg.sql import SQL, Identifier
from pyspark.sql import SparkSession
from tests.integration.materialization.warehouse import warehouse

from outbox_events.errors import RefusedError
from outbox_events.http_session import HttpEndpoint
from outbox_events.waiting import Observation, wait_for
from outbox_kit.stack import StackState
from outbox_spark.commands.reconcile import reconcile
from outbox_spark.commands.reconcile_report import ComparisonResult
from outbox_spark.jobs.model import MaterializeJob
from outbox_spark.kafka.offset_ranges import TopicAdmin, describe
from outbox_spark.runs.materialize_table import materialize

TOPIC = "zombies.thing"
SCHEMA = {"type": "record", "name": "Thing", "fields": [{"name": "n", "type": "int"}]}
EAGER = {
    "cleanup.policy": "compact",
    "segment.ms": "50",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
    "min.compaction.lag.ms": "1",
}

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.fixture
def admin(state: StackState) -> Iterator[AdminClient]:
    """Shorten the pause of the broker's log cleaner, and restore the setting afterwards."""
    client = AdminClient({"bootstrap.servers": state.kafka})
    broker = str(client.describe_cluster().result().nodes[0].id)

    def backoff(operation: AlterConfigOpType) -> None:
        entry = ConfigEntry("log.cleaner.backoff.ms", "100", incremental_operation=operation)
        resource = ConfigResource(ResourceType.BROKER, broker, incremental_configs=[entry])
        client.incremental_alter_configs([resource])[resource].result()

    backoff(AlterConfigOpType.SET)
    client.create_topics([NewTopic(TOPIC, 1, 1, config=EAGER)])[TOPIC].result()
    yield client
    backoff(AlterConfigOpType.DELETE)
    client.delete_topics([TOPIC])[TOPIC].result()


@pytest.fixture
def job(state: StackState) -> MaterializeJob:
    target = warehouse(state)
    return MaterializeJob(
        "thing",
        TOPIC,
        "zombie",
        {"bootstrap.servers": state.kafka},
        HttpEndpoint(state.registry),
        "warehouse",
        target,
    )


def schema_id(state: StackState, topic: str) -> int:
    answer = requests.post(
        f"{state.registry}/subjects/{topic}-value/versions", json={"schema": json.dumps(SCHEMA)}, timeout=30
    )
    answer.raise_for_status()
    return int(answer.json()["id"])


class Sender:
    """Writes records one at a time."""

    def __init__(self, state: StackState, topic: str = TOPIC) -> None:
        self._producer = Producer({"bootstrap.servers": state.kafka})
        self._id = schema_id(state, topic)
        self._topic = topic

    def send(self, key: str, n: int | None, *, partition: int = 0, commit: int | None = None) -> None:
        """Send a record. `commit` is the commit of its source_sequence, or None for a record without this header."""
        value = None
        if n is not None:
            body = io.BytesIO()
            fastavro.schemaless_writer(body, fastavro.parse_schema(SCHEMA), {"n": n})
            value = b"\x00" + struct.pack(">I", self._id) + body.getvalue()
        headers: dict[str, str | bytes | None] = {}
        if commit is not None:
            headers["source_sequence"] = f"{0:04x}_{commit:016x}-{0:016x}"
        self._producer.produce(self._topic, value, key, partition, headers=headers)
        assert self._producer.flush(30) == 0


def keys(state: StackState) -> list[str]:
    """Return the key of every record in the topic, in order of offset."""
    consumer = Consumer({"bootstrap.servers": state.kafka, "group.id": "zombies", "enable.auto.commit": False})
    try:
        partition = TopicPartition(TOPIC, 0, 0)
        end = consumer.get_watermark_offsets(partition, timeout=30)[1]
        consumer.assign([partition])
        actual: list[str] = []
        while (message := consumer.poll(10)) is not None:
            assert message.error() is None
            actual.append((message.key() or b"").decode())
            if message.offset() == end - 1:
                break
        return actual
    finally:
        consumer.close()


def compacted_away(state: StackState, sender: Sender, key: str) -> None:
    """Write until the key is removed. Only closed segments are cleaned, and a tombstone is removed one round later."""

    def poll() -> Observation[bool]:
        sender.send("filler", 0)
        actual = keys(state)
        return Observation(None if key in actual else True, f"{len(actual)} records, {actual.count(key)} of {key}")

    wait_for(f"compaction of {key}", poll, seconds=60)


def rows(state: StackState, table: str = "zombie") -> dict[str, int]:
    with psycopg.connect(state.target) as connection:
        query = SQL("select aggregate_id, n from {}").format(Identifier(table))
        return dict(connection.execute(query).fetchall())


@pytest.mark.long
def test_detects_and_repairs_a_missed_tombstone(
    spark: SparkSession, state: StackState, admin: AdminClient, job: MaterializeJob
) -> None:
    sender, before = Sender(state), datetime.now(UTC)
    for n, key in enumerate(("kept", "removed", "changed")):
        sender.send(key, n)
    topic = describe(job.kafka, TOPIC)
    assert (topic.delete_retention, topic.min_compaction_lag) == (timedelta(0), timedelta(seconds=0.001))
    topics = TopicAdmin(job.kafka)
    assert (topics.offsets_at(topic, before), topics.offsets_at(topic, datetime.now(UTC))) == (
        {0: 0},
        topic.end_offsets,
    )
    materialize(spark, job, print)
    sender.send("removed", None)
    compacted_away(state, sender, "removed")
    # Set the retention to a day again, so that reconcile detects the row, and not the run before it.
    entry = ConfigEntry("delete.retention.ms", "86400000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result()
    actual = reconcile(spark, job, print)
    assert (actual.result, {k: v for k, v in actual.counts.items() if v}) == (ComparisonResult.DIFFERENT, {"zombie": 1})
    assert list(actual.examples["zombie"]) == ["removed"]  # type: ignore[index]
    repaired = reconcile(spark, job, print, repair=True)
    assert (repaired.result, repaired.repaired_count) == (ComparisonResult.REPAIRED, 1)
    assert set(rows(state)) == {"kept", "changed"}
    materialize(spark, job, print)
    assert rows(state) == {"kept": 0, "changed": 2, "filler": 0}
    assert reconcile(spark, job, print).result is ComparisonResult.SAME


def create_topic(admin: AdminClient, topic: str) -> Observation[bool]:
    """Create a topic. Report it as not ready while Kafka is still deleting the old topic."""
    try:
        admin.create_topics([NewTopic(topic, 1, 1, config={"cleanup.policy": "compact"})])[topic].result()
    except KafkaException as error:
        return Observation(None, error.args[0].str())
    return Observation(True, "made")


@pytest.fixture
def uncompacted_job(state: StackState, job: MaterializeJob, request: pytest.FixtureRequest) -> Iterator[MaterializeJob]:
    """Create a topic for this test, and yield a job that materializes it."""
    name = request.function.__name__.removeprefix("test_")
    topic = f"plain.{name}"
    client = AdminClient({"bootstrap.servers": state.kafka})
    wait_for(f"topic {topic}", lambda: create_topic(client, topic), seconds=30)
    yield structs.replace(job, topic=topic, table=name[:30])
    client.delete_topics([topic])[topic].result()


def test_rejects_a_recreated_topic(spark: SparkSession, state: StackState, uncompacted_job: MaterializeJob) -> None:
    """The offsets are valid, and only the topic id differs."""
    admin = AdminClient({"bootstrap.servers": state.kafka})
    sender = Sender(state, uncompacted_job.topic)
    sender.send("before", 1)
    materialize(spark, uncompacted_job, print)
    first = describe(uncompacted_job.kafka, uncompacted_job.topic)
    admin.delete_topics([uncompacted_job.topic])[uncompacted_job.topic].result()
    wait_for(
        f"topic {uncompacted_job.topic} made again", lambda: create_topic(admin, uncompacted_job.topic), seconds=30
    )
    sender = Sender(state, uncompacted_job.topic)
    sender.send("after", 1)
    sender.send("later", 2)
    second = describe(uncompacted_job.kafka, uncompacted_job.topic)
    assert second.topic_id != first.topic_id
    assert (first.end_offsets, second.end_offsets) == ({0: 1}, {0: 2})
    with pytest.raises(RefusedError, match="was deleted and recreated") as refused:
        materialize(spark, uncompacted_job, print)
    assert "outbox-rebuild" in refused.value.hint
    assert rows(state, uncompacted_job.table) == {"before": 1}


def test_continues_in_a_new_epoch_after_partitions_are_added(
    spark: SparkSession, state: StackState, uncompacted_job: MaterializeJob
) -> None:
    admin = AdminClient({"bootstrap.servers": state.kafka})
    sender = Sender(state, uncompacted_job.topic)
    for commit in (1, 2, 3):
        sender.send("moves", commit, commit=commit)
    materialize(spark, uncompacted_job, print)
    admin.create_partitions([NewPartitions(uncompacted_job.topic, 2)])[uncompacted_job.topic].result()

    def has_new_partitions() -> Observation[bool]:
        actual = describe(uncompacted_job.kafka, uncompacted_job.topic).end_offsets
        return Observation(True if set(actual) == {0, 1} else None, f"{len(actual)} partitions")

    wait_for(f"two partitions of {uncompacted_job.topic}", has_new_partitions, seconds=30)
    # A key may have a lower offset in its new partition. Its records in the old partition are older regardless.
    sender = Sender(state, uncompacted_job.topic)
    sender.send("moves", 4, partition=1, commit=4)
    sender.send("moves", 2, partition=0, commit=2)
    outcome = materialize(spark, uncompacted_job, print)
    assert (outcome.offsets_from, outcome.offsets_to) == ({0: 3, 1: 0}, {0: 4, 1: 1})
    with psycopg.connect(state.target) as connection:
        query = SQL("select n, _partition_epoch, _partition, _offset from {}").format(Identifier(uncompacted_job.table))
        assert connection.execute(query).fetchall() == [(4, 1, 1, 0)]
        progress = "select (progress->>'partition_epoch')::int from outbox_offsets where table_name = %s"
        assert connection.execute(progress, (uncompacted_job.table,)).fetchone() == (1,)
    assert reconcile(spark, uncompacted_job, print).result is ComparisonResult.SAME
