"""Inputs that every rule accepts, and functions that break one property."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from outbox_kit.linting import LintInput, lint
from outbox_kit.pipeline import Aggregate, Environment, Pipeline, load_pipeline, render_connector
from outbox_kit.pipeline.environment import DeltaTarget
from outbox_kit.rules import Check, Status

REPOSITORY = Path(__file__).resolve().parents[3]
ROUTER = "transforms.outbox."
EVENT_ROUTER = {
    "transforms": "outbox",
    "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
    "transforms.outbox.route.by.field": "aggregate_type",
    "transforms.outbox.table.field.event.key": "aggregate_id",
    "transforms.outbox.route.topic.replacement": "library.${routedByValue}",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
}
CHAIN = {
    "transforms": "unwrap,key,topic",
    "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
    "transforms.unwrap.predicate": "rows",
    "transforms.key.type": "org.apache.kafka.connect.transforms.ValueToKey",
    "transforms.key.fields": "aggregate_id",
    "transforms.topic.type": "org.apache.kafka.connect.transforms.RegexRouter",
    "transforms.topic.regex": r"library\.public\.outbox_event",
    "transforms.topic.replacement": "library.book",
    "predicates": "rows",
    "predicates.rows.type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
    "predicates.rows.pattern": "library[.]public[.].*",
    "key.converter": "io.apicurio.registry.utils.converter.AvroConverter",
    "value.converter": "io.apicurio.registry.utils.converter.AvroConverter",
}
BY_FIELD = {
    "transforms": "unwrap,key,route,place",
    "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
    "transforms.key.type": "org.apache.kafka.connect.transforms.ValueToKey",
    "transforms.key.fields": "aggregate_id",
    "transforms.route.type": "io.outboxkit.smt.RouteByField",
    "transforms.route.field": "value.aggregate_type",
    "transforms.route.topics": "author:library.author,book:library.book,outbox-canary:library.outbox-canary",
    "transforms.place.type": "io.outboxkit.smt.SetPartition",
    "transforms.place.field": "key",
    "transforms.place.topic.partitions": "library.author:4,library.book:4,library.outbox-canary:1",
}


def library() -> Pipeline:
    """The pipeline file of the worked example."""
    return load_pipeline(REPOSITORY / "connectors" / "library.yaml")


def environment(**kafka: object) -> Environment:
    """An environment with fixed values."""
    return Environment.model_validate(
        {
            "name": "fixed",
            "source": {
                "host": "db.example.internal",
                "database": "library",
                "admin": {"user": "owner", "password": "owner-secret"},
                "connector": {"user": "reader", "password": "${file:/secrets/db.properties:library.password}"},
            },
            "kafka": {"bootstrap_servers": "kafka.example.internal:9092", **kafka},
            "registry": {"url": "http://registry.example.internal/apis/ccompat/v7"},
            "connect": {"url": "http://connect.example.internal:8083"},
            "targets": {"lake": {"kind": "delta", "path": "s3a://lake"}, "warehouse": WAREHOUSE},
        }
    )


WAREHOUSE = {"kind": "postgres", "host": "w", "database": "w", "user": "w", "password": "w-secret"}


def target(
    pipeline: Pipeline | None = None, found: Environment | None = None, label: str = "library.yaml"
) -> LintInput:
    """A pipeline in an environment, rendered."""
    pipeline, found = pipeline or library(), found or environment()
    config = render_connector(pipeline, found, None, REPOSITORY / "connectors" / "templates")
    return LintInput(pipeline, found, config, label)


def setting(**changes: str | None) -> LintInput:
    """Return the valid input with changed connector settings; None removes one."""
    return configured(target(), {key.replace("__", "."): value for key, value in changes.items()})


def configured(good: LintInput, changes: dict[str, str | None]) -> LintInput:
    """A target with settings of the connector changed; None leaves one out."""
    merged = {**good.config, **changes}
    return replace(good, config={key: value for key, value in merged.items() if value is not None})


def with_transforms(settings: dict[str, str]) -> LintInput:
    """Return the valid input with another chain of transforms and its converters."""
    own = ("transforms", "predicates", "value.converter", "key.converter")
    valid = target()
    retained = {key: value for key, value in valid.config.items() if not key.startswith(own)}
    return replace(valid, config={**retained, **settings})


def with_messages(good: LintInput | None = None, prefix: str | None = "outbox", **changes: str | None) -> LintInput:
    """The variant without a table."""
    settings: dict[str, str | None] = {
        "message.prefix.exclude.list": None,
        "message.prefix.include.list": "outbox",
        "table.include.list": "outbox_kit.no_table",
        f"{ROUTER}table": None,
        f"{ROUTER}message.prefix": "outbox",
        f"{ROUTER}snapshot.rows": None,
    }
    good = good or target()
    source = good.pipeline.source.model_copy(update={"message_prefix": prefix})
    good = replace(good, pipeline=good.pipeline.model_copy(update={"source": source}))
    return configured(good, {**settings, **{key.replace("__", "."): value for key, value in changes.items()}})


def with_book(**changes: Any) -> LintInput:  # noqa: ANN401 - values of an aggregate
    """Return the valid input with the aggregate `book` changed, without validation."""
    pipeline = library()
    book = pipeline.aggregates["book"].model_copy(update=changes)
    return target(pipeline.model_copy(update={"aggregates": {**pipeline.aggregates, "book": book}}))


def with_payloads(payload: str, **changes: Any) -> LintInput:  # noqa: ANN401 - values of an aggregate
    """Return the valid input with another payload format; tables and backfills are JSON."""
    pipeline = library()
    created = {
        name: Aggregate.model_validate(
            {"schema": None if payload == "text" else entry.schema_file, "partitions": 4, "payload": payload, **changes}
        )
        for name, entry in pipeline.aggregates.items()
    }
    source = pipeline.source.model_copy(update={"schema_version_column": "version" if payload == "avro" else None})
    return target(pipeline.model_copy(update={"aggregates": created, "materializations": [], "source": source}))


def with_source(**changes: object) -> LintInput:
    """Return the valid input with `source` changed."""
    pipeline = library()
    return target(pipeline.model_copy(update={"source": pipeline.source.model_copy(update=changes)}))


def with_topic(**settings: str) -> LintInput:
    """Return the valid input with settings of the topic of books."""
    return with_book(topic={key.replace("__", "."): value for key, value in settings.items()})


def with_environment(good: LintInput, section: str, **changes: object) -> LintInput:
    """A target with one section of the environment changed."""
    changed = getattr(good.environment, section).model_copy(update=changes)
    return replace(good, environment=good.environment.model_copy(update={section: changed}))


def another(prefix: str = "second", aggregate: str = "shelf", **same: object) -> LintInput:
    """Return a second pipeline that shares only `same` with the first."""
    first = library()
    source = first.source.model_copy(
        update={
            key: same.get(key, value)
            for key, value in {"table": "public.second", "publication": "second", "slot": "second"}.items()
        }
    )
    aggregates: dict[str, Aggregate] = {aggregate: first.aggregates["book"]}
    pipeline = first.model_copy(
        update={
            "name": same.get("name", "second"),
            "prefix": prefix,
            "source": source,
            "aggregates": aggregates,
            "connector": first.connector.model_copy(update={"name": same.get("connector", "second")}),
            "materializations": same.get("materializations", []),
        }
    )
    return target(pipeline, label="second.yaml")


def without_targets(good: LintInput) -> LintInput:
    """Return an environment with another target than the one of the pipeline."""
    targets = {"elsewhere": DeltaTarget(kind="delta", path="s3a://x"), "lake": good.environment.targets["lake"]}
    return replace(good, environment=good.environment.model_copy(update={"targets": targets}))


def broken(*targets: LintInput) -> list[Check]:
    """Checks that did not pass."""
    return [check for check in lint(targets) if check.status is not Status.PASS]
