"""Later steps of a batch do not read the topic again, because it may have been compacted in the meantime."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from tests.spark.kafka_log import Log
from tests.spark.spark_kafka import select_columns
from tests.spark.table_under_test import Target
from tests.spark.thing_records import SCHEMAS, put

from outbox_spark.runs import apply_batch
from outbox_spark.session.error_redaction import redacted
from outbox_spark.session.persisted import allow_topic_reads, forbid_topic_reads, persist
from outbox_spark.sinks import PostgresTable


def log_of(*commits: int) -> Log:
    log = Log("test.thing")
    for commit in commits:
        put(log, "a", commit)
    return log


def without_persisting(_: ExitStack, frame: DataFrame) -> DataFrame:
    """Return the frame without persisting it, as if its rows had been lost with an executor."""
    return frame


@pytest.mark.parametrize("kind", ["postgres_target", "delta_target"])
def test_lost_partitions_fail_the_batch_without_changes(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    target: Target = request.getfixturevalue(kind)
    monkeypatch.setattr(PostgresTable, "stage_early", lambda *_: None)  # this action does not persist anything
    target.run(log_of(1), SCHEMAS)
    log = log_of(1, 2)
    before = (target.rows(), target.committed())
    with monkeypatch.context() as patch:
        patch.setattr(apply_batch, "persist", without_persisting)
        with pytest.raises(Py4JJavaError) as caught:
            target.run(log, SCHEMAS)
    assert "persisted rows of a batch were lost" in str(redacted(caught.value))
    assert (target.rows(), target.committed()) == before
    target.run(log, SCHEMAS)
    assert target.state("n") == {"a": {"n": 2}}


def test_later_steps_do_not_read_again(spark: SparkSession) -> None:
    records = select_columns(log_of(1, 2).read(spark, log_of(1, 2).range_from(None)))
    with ExitStack() as stack:
        forbid_topic_reads(stack, spark)
        with pytest.raises(Py4JJavaError, match="LostException"):
            records.count()
        with allow_topic_reads(spark):
            assert records.count() == 2
        with pytest.raises(Py4JJavaError, match="LostException"):
            records.count()
        frame = persist(stack, records)
        with allow_topic_reads(spark):
            frame.count()
        assert frame.count() == 2
    assert records.count() == 2
