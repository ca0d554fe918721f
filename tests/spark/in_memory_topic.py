"""Replaces Kafka and the schema registry with a Log in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from tests.spark.kafka_log import Log, Schemas
from tests.spark.spark_kafka import select_columns

from outbox_spark.commands import metrics
from outbox_spark.kafka import topic_access
from outbox_spark.kafka.offset_ranges import TopicAdmin, TopicDescription

SCHEMA = {"type": "record", "name": "Thing", "fields": [{"name": "n", "type": "int"}]}


@contextmanager
def topic_in_memory(log: Log, schema: dict[str, Any] | None = None) -> Iterator[None]:
    """Make runs read `log`. When the metrics request the lag, the topic has three more offsets."""
    ends, schemas = log.end(), Schemas({1: schema or SCHEMA}, 1)
    state = TopicDescription(log.topic, log.topic_id, dict.fromkeys(ends, 0), ends)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TopicAdmin, "describe_all", lambda _, topics: dict.fromkeys(topics, state))
        patch.setattr(metrics, "describe", lambda *_: replace(state, end_offsets={0: ends[0] + 3}))
        for reader in ("read_every", "read_newest"):
            patch.setattr(
                topic_access,
                reader,
                lambda spark, _, read_range, **options: select_columns(log.read(spark, read_range), **options),
            )
        patch.setattr("outbox_spark.runs.apply_batch.is_small", lambda _: False)  # such a topic has no RangeReader
        patch.setattr(
            "outbox_spark.decoding.schema_cache.SchemaRegistry.latest", lambda _, subject: schemas.latest(subject)
        )
        patch.setattr(
            "outbox_spark.decoding.schema_cache.SchemaRegistry.recent", lambda _, subject: schemas.recent(subject)
        )
        patch.setattr(
            "outbox_spark.decoding.schema_cache.SchemaRegistry.all_versions", lambda _, subject: schemas.recent(subject)
        )
        patch.setattr("outbox_spark.decoding.schema_cache.SchemaRegistry.schema", lambda _, key: schemas.schema(key))
        yield
