"""Routed topics against topics that `apply` makes, key column, partition counts, dead letters."""

from __future__ import annotations

from collections.abc import Iterator

from outbox_kit.connector_config import EVENT_ROUTER, MESSAGES, ROUTER, VALUE_TO_KEY, items
from outbox_kit.linting.lint_input import Target
from outbox_kit.linting.routing import routes
from outbox_kit.linting.rule import Finding, rule

# Settings that name a column of the outbox table, and which one.
COLUMN_KEYS = {
    "table.field.event.id": "id",
    "table.field.event.payload": "payload",
    "route.by.field": "aggregate_type",
    "table.field.event.type": "event_type",
    "table.field.event.timestamp": "created_at",
    "table.field.event.headers": "headers",
}
# EventRouter's own defaults; without one the column is not read.
EVENT_ROUTER_COLUMNS = {
    "table.field.event.id": "id",
    "table.field.event.payload": "payload",
    "route.by.field": "aggregatetype",
}
KEY = "table.field.event.key"
SCHEMA_VERSION = "table.field.event.schema.version"


@rule(
    "route.declared",
    "every topic that the config routes to is one that `apply` makes",
    why="Connect's producer creates none: a missing topic stops the task, and all that is behind the row",
)
def declared(target: Target) -> Iterator[Finding]:
    for route in routes(target):
        if route.topic not in target.topics:
            expected = target.pipeline.topic_of(route.aggregate) if route.aggregate else ", ".join(target.topics)
            yield Finding(f"{route.key}: topic {route.topic} is not declared", expected, "route to a declared topic")


@rule(
    "route.aggregates",
    "every aggregate of the pipeline file, and the canary, has a route to its own topic",
    why="rows of another type become dead letters, and the table of the aggregate stands still",
)
def aggregates(target: Target) -> Iterator[Finding]:
    found = {route.aggregate: route.topic for route in routes(target)}
    if not found or "" in found:
        return
    for name in target.pipeline.routed:
        wanted = target.pipeline.topic_of(name)
        if found.get(name) is None:
            yield Finding(f"aggregate {name} has no route", wanted, "add it to `aggregates` of the transform")
        elif found[name] != wanted and found[name] in target.topics:
            yield Finding(f"aggregate {name} goes to {found[name]}", wanted, "route it to its own topic")


@rule(
    "route.compacted",
    "topics of aggregates have `cleanup.policy=compact`",
    why="with `delete` the newest state of an aggregate is forgotten; with both, too",
)
def compacted(target: Target) -> Iterator[Finding]:
    own = {target.pipeline.topic_of(name) for name in target.pipeline.routed}
    for name in sorted(own | {route.topic for route in routes(target)}):
        topic = target.topics.get(name)
        if topic is not None and topic.config.get("cleanup.policy") != "compact":
            seen = f"topic {name}: cleanup.policy={topic.config.get('cleanup.policy')}"
            yield Finding(seen, "cleanup.policy=compact", "route states to compacted topics only")


@rule(
    "route.partitions",
    "the partition count that the transform was told is the topic's",
    why="a count too high sends to partitions that do not exist, and hangs; too low leaves keys where they were not",
)
def partitions(target: Target) -> Iterator[Finding]:
    for route in routes(target):
        topic = target.topics.get(route.topic)
        if topic is not None and route.partitions is not None and route.partitions.strip() != str(topic.partitions):
            seen = f"{route.key}: {route.partitions} partitions, topic {topic.name} has {topic.partitions}"
            yield Finding(seen, str(topic.partitions), "use `aggregate.partitions` in the template")


@rule(
    "route.partition-count",
    "a partition count stands where a partition field does, and for every aggregate of OutboxRouter",
    why="the hash of the field is taken modulo the count; OutboxRouter checks it only when the task starts",
)
def partition_count(target: Target) -> Iterator[Finding]:
    for route in routes(target):
        if route.partitions is None and (route.partition_field is not None or target.uses(ROUTER)):
            yield Finding(f"{route.key}: no partitions", "a count", "use `aggregate.partitions` in the template")


@rule(
    "route.partition-field",
    "`partition_field` of an aggregate is a column that cannot change, and reaches the transform",
    why="a tombstone in another partition misses the records before it; they stay for ever",
)
def partition_field(target: Target) -> Iterator[Finding]:
    columns = target.pipeline.source.columns
    changing = {columns.id, columns.event_type, columns.payload, columns.headers, columns.created_at, "seq"}
    found = {route.aggregate: route for route in routes(target)}
    for name, aggregate in target.pipeline.aggregates.items():
        wanted = aggregate.partition_field
        if wanted in changing:
            remedy = "name a column that is the same in every row of one aggregate"
            yield Finding(f"aggregate {name}: partition_field is {wanted}", "an immutable column", remedy)
        route = found.get(name)
        if route is not None and not target.uses(EVENT_ROUTER) and route.partition_field != wanted:
            seen = f"{route.key}: partition field is {route.partition_field or '(not set)'}"
            yield Finding(seen, wanted or "(not set)", "use `aggregate.partition_field` in the template")


@rule(
    "route.key-column",
    "the record key is the column of the aggregate's id",
    why="a compacted topic refuses a record without a key, and with another one keeps the wrong records",
)
def key_column(target: Target) -> Iterator[Finding]:
    column = target.pipeline.source.columns.aggregate_id
    for transform in target.transforms:
        where = f"transforms.{transform.alias}"
        if transform.kind in (ROUTER, EVENT_ROUTER):
            default = "aggregate_id" if transform.kind == ROUTER else "aggregateid"
            seen = transform.settings.get(KEY, default)
            if seen != column:
                yield Finding(f"{where}.{KEY}={seen}", column, f"set {where}.{KEY} to {column}")
        if transform.kind == VALUE_TO_KEY and items(transform.settings.get("fields", "")) != [column]:
            seen = transform.settings.get("fields", "(not set)")
            yield Finding(f"{where}.fields={seen}", column, f"set {where}.fields to {column}")


@rule(
    "route.columns",
    "columns that a router reads are those of the pipeline file",
    why="a column that is not there makes every row a dead letter, or an empty value",
)
def columns(target: Target) -> Iterator[Finding]:
    wanted = target.pipeline.source.columns.model_dump()
    for transform in target.transforms:
        defaults = {ROUTER: COLUMN_KEYS, EVENT_ROUTER: EVENT_ROUTER_COLUMNS}.get(transform.kind, {})
        for key, default in defaults.items():
            seen, expected = transform.settings.get(key, default), wanted[COLUMN_KEYS[key]]
            if seen != expected:
                where = f"transforms.{transform.alias}.{key}"
                yield Finding(f"{where}={seen}", expected, f"set {where} to {expected}")
        version, named = transform.settings.get(SCHEMA_VERSION), target.pipeline.source.schema_version_column
        if transform.kind == ROUTER and version != named:
            where = f"transforms.{transform.alias}.{SCHEMA_VERSION}"
            remedy = f"set {where} to {named}" if named else f"leave {where} out"
            yield Finding(f"{where}={version or '(not set)'}", named or "(not set)", remedy)


@rule(
    "route.table",
    "the transform is told the table of the pipeline file",
    why="it refuses records of other tables, and stops the task",
)
def table(target: Target) -> Iterator[Finding]:
    wanted = target.pipeline.source.table
    for transform in target.transforms:
        seen = transform.settings.get("table")
        if transform.kind == ROUTER and seen is not None and seen != wanted:
            where = f"transforms.{transform.alias}.table"
            yield Finding(f"{where}={seen}", wanted, f"set {where} to {wanted}")


@rule(
    "route.message-prefix",
    "the connector, and the router, read messages of `source.message_prefix`; without one, they read the table",
    why="events are written to one of the two: what reads the other one delivers nothing, or stops the task",
)
def message_prefix(target: Target) -> Iterator[Finding]:
    wanted, read = target.pipeline.source.message_prefix, target.config.get(MESSAGES)
    if target.config and read != wanted:
        remedy = "choose the template that fits: outbox-postgres-messages with source.message_prefix, no other"
        yield Finding(f"{MESSAGES}={read or '(not set)'}", wanted or "not set: the pipeline has a table", remedy)
    for transform in target.transforms:
        seen = transform.settings.get("message.prefix")
        if transform.kind == ROUTER and read is not None and seen != read:
            where = f"transforms.{transform.alias}.message.prefix"
            yield Finding(f"{where}={seen or '(not set)'}", read, f"set {where} to {read}")


@rule(
    "dead-letter",
    "the dead letter topic is set, is one that `apply` makes, and is not compacted",
    why="dead letters of one key would replace each other, and a missing topic stops the task",
)
def dead_letter(target: Target) -> Iterator[Finding]:
    for transform in target.transforms:
        if transform.kind != ROUTER or transform.settings.get("invalid.rows", "dead-letter") == "fail":
            continue
        where = f"transforms.{transform.alias}.dead.letter.topic"
        name, wanted = transform.settings.get("dead.letter.topic"), target.pipeline.dead_letter_topic
        topic = target.topics.get(name or "")
        if name is None:
            yield Finding(f"{where} is not set", wanted, f"set {where} to {wanted}")
        elif topic is None:
            yield Finding(f"{where}={name} is not declared", wanted, f"set {where} to {wanted}")
        elif "compact" in topic.config["cleanup.policy"]:
            yield Finding(f"{where}={name} is compacted", wanted, f"set {where} to {wanted}")


@rule(
    "transaction-topic",
    "`provide.transaction.metadata` is what the pipeline file says, and the router lets such records pass",
    why="their topic is made only then, and a record that the router does not expect stops the task",
)
def transaction_topic(target: Target) -> Iterator[Finding]:
    asked = target.config.get("provide.transaction.metadata", "false").lower() == "true"
    if not asked:
        return
    if target.pipeline.transaction_topic not in target.topics:
        expected = "connector.transaction_metadata: true"
        yield Finding("provide.transaction.metadata=true, without a topic", expected, "say it in the pipeline file")
    for transform in target.transforms:
        if transform.kind == ROUTER and "transactions" not in items(transform.settings.get("pass.through", "")):
            where = f"transforms.{transform.alias}.pass.through"
            yield Finding(f"{where} does not have transactions", "transactions", f"add transactions to {where}")


RULES = (
    declared,
    aggregates,
    compacted,
    partitions,
    partition_count,
    partition_field,
    key_column,
    columns,
    table,
    message_prefix,
    dead_letter,
    transaction_topic,
)
