"""The examples of docs/embedding.md, run unchanged on a topic of the stack."""

from __future__ import annotations

import json
import runpy
import signal
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from tests.spark.kafka_log import framed, sequence

from outbox_events.http_session import HttpEndpoint
from outbox_kit.stack import StackState
from outbox_spark.jobs.job_file import as_text
from outbox_spark.jobs.model import DeltaTarget, MaterializeJob

EXAMPLES = Path(__file__).resolve().parents[3] / "docs" / "examples" / "embedding"
SCHEMA = {"type": "record", "name": "Thing", "fields": [{"name": "n", "type": "int"}]}
TIMEOUT_SECONDS = 30

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@dataclass(frozen=True)
class Things:
    """A topic with the states a (1, then 4) and b (2), a deleted key c, and an unreadable record of d."""

    job: MaterializeJob
    folder: Path


@pytest.fixture(scope="module")
def things(state: StackState, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Things]:
    name, folder = f"embedding.{uuid.uuid4().hex[:8]}", tmp_path_factory.mktemp("embedding")
    admin = AdminClient({"bootstrap.servers": state.kafka})
    admin.create_topics([NewTopic(name, 2, 1, config={"cleanup.policy": "compact"})])[name].result(TIMEOUT_SECONDS)
    subject = f"{state.registry}/subjects/{name}-value/versions"
    answer = requests.post(subject, json={"schema": json.dumps(SCHEMA)}, timeout=TIMEOUT_SECONDS)
    assert answer.ok, answer.text
    schema_id = int(answer.json()["id"])
    producer = Producer({"bootstrap.servers": state.kafka})
    events = [("a", 1), ("b", 2), ("c", 3), ("a", 4), ("c", None), ("d", "bad")]
    for commit, (key, n) in enumerate(events, start=1):
        value = framed(SCHEMA, schema_id, {"n": n}) if isinstance(n, int) else n
        producer.produce(name, value, key, headers=[("source_sequence", sequence(commit).encode())])
    assert producer.flush(TIMEOUT_SECONDS) == 0
    target = DeltaTarget(str(folder / "lake"))
    kafka = {"bootstrap.servers": state.kafka}
    yield Things(MaterializeJob("thing", name, "thing", kafka, HttpEndpoint(state.registry), "lake", target), folder)
    admin.delete_topics([name])[name].result(TIMEOUT_SECONDS)


@pytest.fixture
def example(things: Things, monkeypatch: pytest.MonkeyPatch) -> Iterator[Things]:
    """Set the environment variables of the examples."""
    job_file = things.folder / "job.json"
    job_file.write_text(as_text([things.job]))
    variables = {
        "OUTBOX_JOB_FILE": str(job_file),
        "OUTBOX_TOPIC": things.job.topic,
        "OUTBOX_REGISTRY": things.job.registry.url,
        "OUTBOX_BOOTSTRAP_SERVERS": things.job.kafka["bootstrap.servers"],
        "OUTBOX_STREAM_OUTPUT": str(things.folder / "changes"),
        "OUTBOX_STREAM_CHECKPOINT": str(things.folder / "checkpoint"),
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return things


def run_example(name: str) -> dict[str, Any]:
    """Run the file, and return its variables."""
    return runpy.run_path(str(EXAMPLES / name))


def left_behind(spark: SparkSession) -> dict[str, Any]:
    """Return the state that a notebook shares with the calls."""
    context, jvm = spark.sparkContext, spark._jvm
    assert jvm is not None
    active = jvm.org.apache.spark.sql.classic.SparkSession.active()
    return {
        "settings": spark.conf.getAll,
        "views": {table.name for table in spark.catalog.listTables() if table.isTemporary},
        "active": active.equals(spark._jsparkSession),
        "group": (context.getLocalProperty("spark.jobGroup.id"), context.getLocalProperty("spark.job.description")),
        "signals": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)],
        "stdout": jvm.java.lang.System.identityHashCode(jvm.java.lang.System.out),
        "stopped": context._jsc.sc().isStopped(),
    }


def test_notebook_shares_its_session(spark: SparkSession, example: Things) -> None:
    previous_zone = spark.conf.get("spark.sql.session.timeZone")
    spark.range(1).collect()  # Delta's extension changes settings on the first query of a session
    before = left_behind(spark)
    variables = run_example("notebook.py")
    assert {(row.aggregate_id, row.n) for row in variables["readable"]} == {("a", 4), ("b", 2)}
    assert [tuple(row) for row in variables["unreadable"]] == [("d", "not-wire-format")]
    after = left_behind(spark)
    for view in ("numbers", "state"):  # of the notebook itself
        assert view in after["views"]
        spark.catalog.dropTempView(view)
        after["views"].remove(view)
    spark.conf.set("spark.sql.session.timeZone", str(previous_zone))
    settings, previous_settings = after.pop("settings"), before.pop("settings")
    changed = {name: value for name, value in settings.items() if previous_settings.get(name) != value}
    assert changed == {"spark.sql.session.timeZone": "America/New_York"}
    assert settings.keys() == previous_settings.keys()
    assert after == before
    table = spark.read.format("delta").load(f"{example.job.target.path}/thing")  # type: ignore[union-attr]
    assert {(row.aggregate_id, row.n) for row in table.collect()} == {("a", 4), ("b", 2)}


def test_airflow_retries_only_what_can_succeed(spark: SparkSession, example: Things) -> None:
    del spark
    variables = run_example("airflow_task.py")
    assert variables["materialize_table"]("thing", "lake") in {0, 6}, "0 if the notebook has read the topic"
    with pytest.raises(variables["NotRetryableError"]):
        variables["materialize_table"]("thing", "elsewhere")
    del example


def test_dbt_model_returns_readable_states(spark: SparkSession, example: Things) -> None:
    del example

    class Dbt:
        """Receives the configuration of the model."""

        settings: dict[str, object]

        def config(self, **settings: object) -> None:
            self.settings = settings

    dbt = Dbt()
    rows = run_example("dbt_model.py")["model"](dbt, spark).collect()
    assert {(row.aggregate_id, row.n) for row in rows} == {("a", 4), ("b", 2)}
    assert dbt.settings == {"materialized": "table"}


def test_stream_returns_every_record_once(spark: SparkSession, example: Things) -> None:
    for _ in range(2):
        run_example("stream.py")
    rows = spark.read.json(str(example.folder / "changes")).collect()
    actual = sorted(
        (row._sequence, row.aggregate_id, row.n, row["__outbox_deleted"], row["__outbox_reason"]) for row in rows
    )
    assert actual == [
        (sequence(1), "a", 1, False, None),
        (sequence(2), "b", 2, False, None),
        (sequence(3), "c", 3, False, None),
        (sequence(4), "a", 4, False, None),
        (sequence(5), "c", None, True, None),
        (sequence(6), "d", None, False, "not-wire-format"),
    ]


def test_from_avro_reads_the_same_topic(spark: SparkSession, example: Things) -> None:
    del spark, example
    rows = run_example("from_avro.py")["rows"]
    assert sorted((row.aggregate_id, row.n) for row in rows if row.n is not None) == [
        ("a", 1),
        ("a", 4),
        ("b", 2),
        ("c", 3),
    ]
