"""Inputs that every rule accepts, and functions that each break one property."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from outbox_kit.linting import LintInput, lint
from outbox_kit.pipeline import Aggregate, Environment, Pipeline, load_pipeline, render_connector
from outbox_kit.pipeline.environment import DeltaTarget, PostgresTarget
from outbox_kit.results.checks import Check, Status

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
    """Return the pipeline of the worked example."""
    return load_pipeline(REPOSITORY / "connectors" / "library.yaml")


def environment(**kafka: object) -> Environment:
    """Return an environment with fixed values."""
    return Environment.model_validate(
        {
            "name": "fixed",
            "source": {
                "host": "db.example.internal",
                "database": "library",
                "sslmode": "verify-full",
                "admin": {"user": "owner", "password": "owner-secret"},
                "connector": {"user": "reader", "password": "${file:/secrets/db.properties:library.password}"},
            },
            "kafka": {"bootstrap_servers": "kafka.example.internal:9092", **kafka},
            "registry": {"url": "http://registry.example.internal/apis/ccompat/v7"},
            "connect": {"url": "http://connect.example.internal:8083"},
            "targets": {"lake": {"kind": "delta", "path": "gs://lake"}, "warehouse": WAREHOUSE},
        }
    )


WAREHOUSE = {"kind": "postgres", "host": "w", "database": "w", "user": "w", "password": "w-secret"}
WAREHOUSE |= {"sslmode": "verify-full"}


def on_this_machine() -> Environment:
    """Return an environment without TLS whose addresses, as outbox-kit sees them, are on this machine."""
    valid = environment(
        bootstrap_servers="127.0.0.1:9092,[::1]:9092",
        replication_factor=1,
        min_insync_replicas=1,
        client={"security.protocol": "SASL_PLAINTEXT"},
    )
    connector = valid.source.connector.model_copy(update={"host": "postgres"})
    warehouse = PostgresTarget.model_validate({**WAREHOUSE, "host": "/run/postgresql", "sslmode": None})
    return valid.model_copy(
        update={
            "source": valid.source.model_copy(update={"host": "localhost", "sslmode": None, "connector": connector}),
            "registry": valid.registry.model_copy(update={"url": "http://localhost:8081", "username": "me"}),
            "connect": valid.connect.model_copy(update={"url": "http://[::1]:8083", "token": SecretStr("t")}),
            "targets": {**valid.targets, "warehouse": warehouse},
        }
    )


def valid_input(
    pipeline: Pipeline | None = None, settings: Environment | None = None, label: str = "library.yaml"
) -> LintInput:
    """Return a lint input with the rendered config."""
    pipeline, settings = pipeline or library(), settings or environment()
    config = render_connector(pipeline, settings, None, REPOSITORY / "connectors" / "templates")
    return LintInput(pipeline, settings, config, label)


def setting(**changes: str | None) -> LintInput:
    """Return the valid input with changed connector settings. In their names, `__` stands for a dot."""
    return configured(valid_input(), {key.replace("__", "."): value for key, value in changes.items()})


def configured(valid: LintInput, changes: dict[str, str | None]) -> LintInput:
    """Return the input with changed connector settings. None removes a setting."""
    merged = {**valid.config, **changes}
    return replace(valid, config={key: value for key, value in merged.items() if value is not None})


def with_transforms(settings: dict[str, str]) -> LintInput:
    """Return the valid input with other transforms and converters."""
    replaced = ("transforms", "predicates", "value.converter", "key.converter")
    valid = valid_input()
    retained = {key: value for key, value in valid.config.items() if not key.startswith(replaced)}
    return replace(valid, config={**retained, **settings})


def with_messages(valid: LintInput | None = None, prefix: str | None = "outbox", **changes: str | None) -> LintInput:
    """Return the input with logical messages instead of a table."""
    settings: dict[str, str | None] = {
        "message.prefix.exclude.list": None,
        "message.prefix.include.list": "outbox",
        "table.include.list": "outbox_kit.no_table",
        f"{ROUTER}table": None,
        f"{ROUTER}message.prefix": "outbox",
        f"{ROUTER}snapshot.rows": None,
    }
    valid = valid or valid_input()
    source = valid.pipeline.source.model_copy(update={"message_prefix": prefix})
    valid = replace(valid, pipeline=valid.pipeline.model_copy(update={"source": source}))
    return configured(valid, {**settings, **{key.replace("__", "."): value for key, value in changes.items()}})


def with_book(**changes: Any) -> LintInput:  # noqa: ANN401 - values of an aggregate
    """Return the valid input with the aggregate `book` changed, without validation."""
    pipeline = library()
    book = pipeline.aggregates["book"].model_copy(update=changes)
    return valid_input(pipeline.model_copy(update={"aggregates": {**pipeline.aggregates, "book": book}}))


def with_payloads(payload: str, **changes: Any) -> LintInput:  # noqa: ANN401 - values of an aggregate
    """Return the valid input with a different payload format, and without tables and backfills, which require JSON."""
    pipeline = library()
    created = {
        name: Aggregate.model_validate(
            {
                "schema": None if payload in ("text", "bytes") else entry.schema_file,
                "partitions": 4,
                "payload": payload,
                **changes,
            }
        )
        for name, entry in pipeline.aggregates.items()
    }
    source = pipeline.source.model_copy(update={"schema_version_column": "version" if payload == "avro" else None})
    return valid_input(pipeline.model_copy(update={"aggregates": created, "materializations": [], "source": source}))


def with_source(**changes: object) -> LintInput:
    """Return the valid input with `source` changed."""
    pipeline = library()
    return valid_input(pipeline.model_copy(update={"source": pipeline.source.model_copy(update=changes)}))


def with_topic(**settings: str) -> LintInput:
    """Return the valid input with settings of the topic of books."""
    return with_book(topic={key.replace("__", "."): value for key, value in settings.items()})


def with_environment(valid: LintInput, section: str, **changes: object) -> LintInput:
    """Return the input with one section of the environment changed."""
    changed = getattr(valid.environment, section).model_copy(update=changes)
    return replace(valid, environment=valid.environment.model_copy(update={section: changed}))


def second_pipeline(prefix: str = "second", aggregate: str = "shelf", **shared: object) -> LintInput:
    """Return the input of a second pipeline, which shares only the values of `shared` with the first pipeline."""
    library_pipeline = library()
    source = library_pipeline.source.model_copy(
        update={
            key: shared.get(key, value)
            for key, value in {"table": "public.second", "publication": "second", "slot": "second"}.items()
        }
    )
    aggregates: dict[str, Aggregate] = {aggregate: library_pipeline.aggregates["book"]}
    pipeline = library_pipeline.model_copy(
        update={
            "name": shared.get("name", "second"),
            "prefix": prefix,
            "source": source,
            "aggregates": aggregates,
            "connector": library_pipeline.connector.model_copy(update={"name": shared.get("connector", "second")}),
            "materializations": shared.get("materializations", []),
        }
    )
    return valid_input(pipeline, label="second.yaml")


def without_targets(valid: LintInput) -> LintInput:
    """Return the input without the target that the pipeline names."""
    targets = {"elsewhere": DeltaTarget(kind="delta", path="gs://x"), "lake": valid.environment.targets["lake"]}
    return replace(valid, environment=valid.environment.model_copy(update={"targets": targets}))


def failed_checks(*inputs: LintInput) -> list[Check]:
    """Return the checks that did not pass."""
    return [check for check in lint(inputs) if check.status is not Status.PASS]
