"""One violation for each rule about pipeline and environment files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import SecretStr
from tests.unit.linting.samples import (
    ROUTER,
    WAREHOUSE,
    configured,
    environment,
    library,
    second_pipeline,
    valid_input,
    with_book,
    with_environment,
    with_messages,
    with_topic,
    without_targets,
)

from outbox_kit.linting import LintInput
from outbox_kit.pipeline import Backfill, Materialization, PostgresTarget
from outbox_kit.pipeline.environment import DeltaTarget, IcebergTarget, Target

QUERY = "select id::text as aggregate_id, to_jsonb(b) as payload from book b"
THIRD: dict[str, Any] = {name: "third" for name in ("name", "publication", "slot", "connector")} | {
    "table": "public.third"
}
ICEBERG = IcebergTarget(
    kind="iceberg", namespace="n", catalog={"type": "rest", "uri": "http://c.example.internal", "credential": "x"}
)
LAKE = IcebergTarget(kind="iceberg", namespace="n", catalog={"type": "hadoop", "warehouse": "/lake"})
SCHEMAS = Path(__file__).with_name("schemas")


def with_backfill(query: str, key: str | list[str] = "id", **changes: object) -> LintInput:
    backfill = Backfill.model_validate({"table": "public.book", "key": key, "query": query})
    return with_book(backfill=backfill, **changes)


def with_schema(schema: str) -> LintInput:
    """Return an input with another schema of books, but without the backfill, whose query returns other fields."""
    return with_book(schema_file=SCHEMAS / schema, backfill=None)


def with_invalid_schema(schema: str) -> LintInput:
    """Return an input with an invalid schema file, for which a config cannot be rendered."""
    valid = valid_input()
    book = valid.pipeline.aggregates["book"].model_copy(update={"schema_file": SCHEMAS / schema})
    pipeline = valid.pipeline.model_copy(update={"aggregates": {**valid.pipeline.aggregates, "book": book}})
    return LintInput(pipeline, valid.environment, {})


def with_partition_field(field: str) -> LintInput:
    """Return an input with books partitioned by a column, but without the backfill, whose query lacks this column."""
    return with_book(partition_field=field, backfill=None)


def with_kafka(**changes: object) -> LintInput:
    return valid_input(settings=environment(**changes))


def with_target(target: Target) -> LintInput:
    """Return the valid input with one more target."""
    valid = valid_input()
    targets = {**valid.environment.targets, "more": target}
    return replace(valid, environment=valid.environment.model_copy(update={"targets": targets}))


def with_history_in(target: Target) -> LintInput:
    """Return the valid input, with books as a history table in one more target."""
    valid = with_target(target)
    materializations = [Materialization(aggregate="book", target="more", table="book", mode="history")]
    pipeline = valid.pipeline.model_copy(update={"materializations": materializations})
    return replace(valid, pipeline=pipeline)


def two_pipelines(**shared: Any) -> list[LintInput]:  # noqa: ANN401 - values of a pipeline
    """Return the library pipeline and a second pipeline with the same values of `shared`."""
    return [valid_input(), second_pipeline(**shared)]


FILE_CASES: list[tuple[str, Callable[[], LintInput | Sequence[LintInput]]]] = [
    ("files", lambda: LintInput(library(), environment(), {}, error=("template x: no", "correct it"))),
    ("schema.file", lambda: with_invalid_schema("missing.avsc")),
    ("schema.file", lambda: with_invalid_schema("broken.avsc")),
    ("schema.file", lambda: with_invalid_schema("enum.avsc")),
    ("materialization.target", lambda: without_targets(valid_input())),
    ("materialization.columns", lambda: with_schema("reserved.avsc")),
    ("materialization.columns", lambda: with_schema("prefix.avsc")),
    ("materialization.columns", lambda: with_schema("system_column.avsc")),
    ("materialization.columns", lambda: with_schema("case.avsc")),
    ("materialization.columns", lambda: with_schema("nested_case.avsc")),
    ("materialization.columns", lambda: with_schema("recursive.avsc")),
    ("materialization.mode", lambda: with_history_in(LAKE)),
    ("materialization.single-writer", lambda: with_target(DeltaTarget(kind="delta", path="S3A://lake"))),
    (
        "materialization.single-writer",
        lambda: with_target(
            IcebergTarget(kind="iceberg", namespace="n", catalog={"type": "hadoop", "warehouse": "s3://lake"})
        ),
    ),
    ("materialization.columns", lambda: with_schema("decimal.avsc")),
    ("backfill.query", lambda: with_backfill("select id, to_jsonb(b) as payload from book b")),
    ("backfill.query", lambda: with_backfill(QUERY, partition_field="tenant")),
    ("backfill.query", lambda: with_backfill(QUERY, ["id", "shelf"])),
    ("backfill.query", lambda: with_backfill(f"{QUERY}; delete from book")),
    ("backfill.query", lambda: with_backfill(f"delete from book returning {QUERY}")),
    ("backfill.query", lambda: with_backfill("select id as aggregate_id /* payload */ from book")),
    (
        "backfill.fields",
        lambda: with_backfill("select id as aggregate_id, JSON_BUILD_OBJECT('a', 1) payload from b"),
    ),
    ("backfill.stable", lambda: with_backfill(f"{QUERY} where created_at > Now() - interval '1 day'")),
    ("route.compacted", lambda: with_topic(cleanup__policy="compact,delete")),
    ("route.partition-field", lambda: with_partition_field("event_type")),
    (
        "route.partition-field",
        lambda: configured(with_partition_field("tenant"), {f"{ROUTER}aggregate.book.partition.field": None}),
    ),
    (
        "route.partition-field",
        lambda: configured(valid_input(), {f"{ROUTER}aggregate.book.partition.field": "tenant"}),
    ),
    (
        "route.partition-count",
        lambda: configured(with_partition_field("tenant"), {f"{ROUTER}aggregate.book.partitions": None}),
    ),
    ("compaction.delete.retention.ms", lambda: with_topic(delete__retention__ms="3600000")),
    ("compaction.min.cleanable.dirty.ratio", lambda: with_topic(min__cleanable__dirty__ratio="0.95")),
    ("compaction.segment.ms", lambda: with_topic(segment__ms="9223372036854775807")),
    ("compaction.message.timestamp.type", lambda: with_topic(message__timestamp__type="LogAppendTime")),
    ("compaction.lag", lambda: with_topic(min__compaction__lag__ms="2", max__compaction__lag__ms="1")),
    ("replication.writable", lambda: with_kafka(min_insync_replicas=4)),
    ("replication.writable", lambda: with_topic(min__insync__replicas="4")),
    ("replication.copies", lambda: with_kafka(replication_factor=2, min_insync_replicas=1)),
    ("replication.copies", lambda: with_kafka(replication_factor=3, min_insync_replicas=3)),
    ("size.topic", lambda: with_topic(max__message__bytes="1000000")),
    ("size.fetch", lambda: with_environment(valid_input(), "kafka", client={"max.partition.fetch.bytes": "65536"})),
    ("secret.environment", lambda: replace(valid_input(), plain_text_secrets=("source.admin.password",))),
    ("secret.connection", lambda: with_environment(valid_input(), "registry", username="me")),
    ("secret.connection", lambda: with_environment(valid_input(), "connect", token=SecretStr("t"))),
    (
        "secret.connection",
        lambda: with_environment(valid_input(), "connect", url="https://c", workers=["http://w:1"], username="me"),
    ),
    ("secret.connection", lambda: with_kafka(client={"security.protocol": "sasl_plaintext"})),
    ("secret.connection", lambda: with_environment(valid_input(), "source", sslmode="require")),
    ("secret.connection", lambda: with_environment(valid_input(), "source", sslmode=None)),
    ("secret.connection", lambda: with_target(PostgresTarget.model_validate({**WAREHOUSE, "sslmode": "prefer"}))),
    ("secret.connection", lambda: with_target(ICEBERG)),
    ("topic.collision", lambda: [second_pipeline("my.books"), second_pipeline("my_books", **THIRD)]),
    (
        "unique.topic",
        lambda: [second_pipeline("my", "books.shelf"), second_pipeline("my.books", "shelf", **THIRD)],
    ),
    ("unique.message-prefix", lambda: [with_messages(), with_messages(second_pipeline())]),
    ("unique.pipeline-name", lambda: two_pipelines(name="library")),
    ("unique.connector", lambda: two_pipelines(connector="library-outbox")),
    ("unique.topic-prefix", lambda: two_pipelines(prefix="library")),
    ("unique.replication-slot", lambda: two_pipelines(slot="library_outbox")),
    ("unique.publication", lambda: two_pipelines(publication="library_outbox")),
    ("unique.outbox-table", lambda: two_pipelines(table="public.outbox_event")),
    (
        "unique.materialized-table",
        lambda: two_pipelines(materializations=[Materialization(aggregate="shelf", target="lake", table="book")]),
    ),
]
