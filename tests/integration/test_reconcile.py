"""Zombies of a real broker: a tombstone that compaction has removed before a run came by."""

from __future__ import annotations

import io
import json
import os
import struct
from collections.abc import Iterator
from datetime import timedelta

import fastavro
import psycopg
import pytest
import requests
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from pyspark.sql import SparkSession

from outbox_kit.stack import StackState
from outbox_kit.waiting import Seen, wait_for
from outbox_spark.model import MaterializeJob, PostgresTarget, Registry
from outbox_spark.ranges import describe, offsets_at
from outbox_spark.reconcile import reconcile
from outbox_spark.reconcile_report import Result
from outbox_spark.runs import materialize
from outbox_spark.session import start_session
from outbox_spark.upkeep import now

TOPIC = "zombies.thing"
THING = {"type": "record", "name": "Thing", "fields": [{"name": "n", "type": "int"}]}
EAGER = {
    "cleanup.policy": "compact",
    "segment.ms": "50",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
    "min.compaction.lag.ms": "1",
}

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m")
    session = start_session("outbox-reconcile-test")
    session.conf.set("spark.sql.shuffle.partitions", "2")
    yield session
    session.stop()


@pytest.fixture
def admin(state: StackState) -> Iterator[AdminClient]:
    """With a cleaner that looks often; as it was afterwards."""
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
    target = PostgresTarget(
        host=state.postgres_host,
        port=state.postgres_port,
        database=state.target_database,
        user=state.materializer_user,
        password=state.materializer_password,
    )
    return MaterializeJob(
        "thing", TOPIC, "zombie", {"bootstrap.servers": state.kafka}, Registry(state.registry), "warehouse", target
    )


def schema_id(state: StackState) -> int:
    answer = requests.post(
        f"{state.registry}/subjects/{TOPIC}-value/versions", json={"schema": json.dumps(THING)}, timeout=30
    )
    answer.raise_for_status()
    return int(answer.json()["id"])


class Sender:
    """Writes records, one by one: each segment holds little."""

    def __init__(self, state: StackState) -> None:
        self._producer = Producer({"bootstrap.servers": state.kafka})
        self._id = schema_id(state)

    def send(self, key: str, n: int | None) -> None:
        value = None
        if n is not None:
            body = io.BytesIO()
            fastavro.schemaless_writer(body, fastavro.parse_schema(THING), {"n": n})
            value = b"\x00" + struct.pack(">I", self._id) + body.getvalue()
        self._producer.produce(TOPIC, value, key)
        assert self._producer.flush(30) == 0


def keys(state: StackState) -> list[str]:
    """Of every record in the topic, in order."""
    consumer = Consumer({"bootstrap.servers": state.kafka, "group.id": "zombies", "enable.auto.commit": False})
    try:
        partition = TopicPartition(TOPIC, 0, 0)
        end = consumer.get_watermark_offsets(partition, timeout=30)[1]
        consumer.assign([partition])
        found: list[str] = []
        while (message := consumer.poll(10)) is not None:
            assert message.error() is None
            found.append((message.key() or b"").decode())
            if message.offset() == end - 1:
                break
        return found
    finally:
        consumer.close()


def compacted_away(state: StackState, sender: Sender, key: str) -> None:
    """Only closed segments are cleaned, and a tombstone goes a round later: keep writing."""

    def look() -> Seen[bool]:
        sender.send("filler", 0)
        found = keys(state)
        return Seen(None if key in found else True, f"{len(found)} records, {found.count(key)} of {key}")

    wait_for(f"compaction of {key}", look, seconds=60)


def rows(state: StackState) -> dict[str, int]:
    with psycopg.connect(state.target) as connection:
        return dict(connection.execute("select aggregate_id, n from zombie").fetchall())


def test_a_tombstone_that_compaction_removed_is_found_and_mended(
    spark: SparkSession, state: StackState, admin: AdminClient, job: MaterializeJob
) -> None:
    sender, before = Sender(state), now()
    for n, key in enumerate(("kept", "removed", "changed")):
        sender.send(key, n)
    topic = describe(job.kafka, TOPIC)
    assert (topic.delete_retention, topic.min_compaction_lag) == (timedelta(0), timedelta(seconds=0.001))
    assert (offsets_at(job.kafka, topic, before), offsets_at(job.kafka, topic, now())) == ({0: 0}, topic.latest)
    materialize(spark, job, print)
    sender.send("removed", None)
    compacted_away(state, sender, "removed")
    # Back to a day, so that it is reconcile that finds the row, not the run before it.
    entry = ConfigEntry("delete.retention.ms", "86400000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result()
    found = reconcile(spark, job, print)
    assert (found.result, {k: v for k, v in found.counts.items() if v}) == (Result.DIFFERENT, {"zombie": 1})
    assert list(found.examples["zombie"]) == ["removed"]  # type: ignore[index]
    mended = reconcile(spark, job, print, repair=True)
    assert (mended.result, mended.repaired) == (Result.MENDED, 1)
    assert set(rows(state)) == {"kept", "changed"}
    materialize(spark, job, print)
    assert rows(state) == {"kept": 0, "changed": 2, "filler": 0}
    assert reconcile(spark, job, print).result is Result.SAME
