"""Define rules for routes: topics, partitions, keys, columns and dead letters of the rendered transforms."""

from __future__ import annotations

from collections.abc import Iterator

from outbox_kit.connect.connector_config import EVENT_ROUTER, MESSAGE_PREFIXES, ROUTER, VALUE_TO_KEY, split_list
from outbox_kit.linting.lint_rule import UNSET, LintInput, LintRules, mismatch, violation
from outbox_kit.pipeline import Aggregate, Source
from outbox_kit.results.checks import Finding

# Defaults of OutboxRouter. By default, all other options that the rule checks are empty.
OPTION_DEFAULTS = {
    "table.op.invalid.behavior": "fatal",
    "deleted.rows": "fail",
    "payload.format": "json",
    "unknown.fields": "refuse",
}
PLACEMENT_OPTION = "table.fields.additional.placement"
LIST_OPTIONS = {PLACEMENT_OPTION, "tombstone.event.types"}
# Router options whose value is a column name, with the column's key in `source.columns` (OutboxRouter's default).
COLUMN_KEYS = {
    "table.field.event.id": "id",
    "table.field.event.payload": "payload",
    "route.by.field": "aggregate_type",
    "table.field.event.type": "event_type",
    "table.field.event.timestamp": "created_at",
    "table.field.event.headers": "headers",
}
# Defaults of EventRouter. EventRouter reads the columns that the other options name only if these options are set.
EVENT_ROUTER_COLUMNS = {
    "table.field.event.id": "id",
    "table.field.event.payload": "payload",
    "route.by.field": "aggregatetype",
}
KEY_OPTION = "table.field.event.key"
DEFAULT_KEY_COLUMNS = {ROUTER: "aggregate_id", EVENT_ROUTER: "aggregateid"}
VERSION_OPTION = "table.field.event.schema.version"
RULES = LintRules()


@RULES.rule(
    "route.declared",
    "`apply` creates every topic to which the config routes rows",
    reason="Connect's producer does not create topics, so a missing topic blocks the row and all later rows",
)
def check_undeclared_topic(lint_input: LintInput) -> Iterator[Finding]:
    for route in lint_input.routes:
        if route.topic not in lint_input.topics:
            topic = lint_input.pipeline.topic_of(route.aggregate) if route.aggregate else ", ".join(lint_input.topics)
            yield violation(f"{route.key}: `apply` creates no topic {route.topic}", topic, f"route rows to {topic}")


@RULES.rule(
    "route.aggregates",
    "every aggregate type of the pipeline file, including the canary, is routed to its own topic",
    reason="rows of an aggregate type without a route become dead letters, and the type's tables are not updated",
)
def check_aggregate_routes(lint_input: LintInput) -> Iterator[Finding]:
    topics = {route.aggregate: route.topic for route in lint_input.routes}
    if not topics or "" in topics:
        return
    for name in lint_input.pipeline.routed:
        expected = lint_input.pipeline.topic_of(name)
        if name not in topics:
            yield violation(f"aggregate type {name} has no route", expected, f"route {name} to {expected}")
        elif topics[name] != expected and topics[name] in lint_input.topics:
            yield violation(f"{name} is routed to {topics[name]}", expected, f"route {name} to {expected}")


@RULES.rule(
    "route.compacted",
    "topics of aggregate types have `cleanup.policy=compact`",
    reason="with `delete`, even in combination with `compact`, the broker removes the latest states of aggregates",
)
def check_compacted(lint_input: LintInput) -> Iterator[Finding]:
    state_topics = {lint_input.pipeline.topic_of(name) for name in lint_input.pipeline.routed}
    for name in sorted(state_topics | {route.topic for route in lint_input.routes}):
        topic = lint_input.topics.get(name)
        if topic is not None and topic.config.get("cleanup.policy") != "compact":
            actual = f"topic {name}: cleanup.policy={topic.config.get('cleanup.policy')}"
            yield violation(actual, "cleanup.policy=compact", "route rows only to topics with cleanup.policy=compact")


@RULES.rule(
    "route.partitions",
    "the partition count of a route equals the partition count of its topic",
    reason="if a route has more partitions than its topic, the producer blocks; if it has fewer, keys change partition",
)
def check_partitions(lint_input: LintInput) -> Iterator[Finding]:
    for route in lint_input.routes:
        topic = lint_input.topics.get(route.topic)
        if topic is not None and route.partitions is not None and route.partitions.strip() != str(topic.partitions):
            actual = f"{route.key}: {route.partitions} partitions, but topic {topic.name} has {topic.partitions}"
            yield violation(actual, str(topic.partitions), "use `aggregate.partitions` in the template")


@RULES.rule(
    "route.partition-count",
    "a partition count is set for every route with a partition field, and for every route of OutboxRouter",
    reason="the partition is a hash modulo this count, and without a count OutboxRouter fails when the task starts",
)
def check_partition_count(lint_input: LintInput) -> Iterator[Finding]:
    for route in lint_input.routes:
        if route.partitions is None and (route.partition_field is not None or lint_input.routers):
            yield violation(f"{route.key}: no partition count", "a count", "use `aggregate.partitions` in the template")


@RULES.rule(
    "route.partition-field",
    "`partition_field` is a column with the same value in all rows of an aggregate, and the transform uses this column",
    reason="if a tombstone is not in the partition of its key's earlier records, the earlier records remain",
)
def check_partition_field(lint_input: LintInput) -> Iterator[Finding]:
    columns = lint_input.pipeline.source.columns
    mutable_columns = {columns.id, columns.event_type, columns.payload, columns.headers, columns.created_at, "seq"}
    routes = {route.aggregate: route for route in lint_input.routes}
    for name, aggregate in lint_input.pipeline.aggregates.items():
        expected = aggregate.partition_field
        if expected in mutable_columns:
            remedy = "name a column that has the same value in every row of an aggregate"
            yield violation(f"aggregate type {name}: partition_field is {expected}", "an immutable column", remedy)
        route = routes.get(name)
        if route is not None and not lint_input.has_transform(EVENT_ROUTER) and route.partition_field != expected:
            actual = f"{route.key}: partition field is {route.partition_field or UNSET}"
            yield violation(actual, expected or UNSET, "use `aggregate.partition_field` in the template")


@RULES.rule(
    "route.key-column",
    "the record key is the column that contains the aggregate id",
    reason="a compacted topic rejects records without a key; with another key, compaction retains the wrong records",
)
def check_key_column(lint_input: LintInput) -> Iterator[Finding]:
    column = lint_input.pipeline.source.columns.aggregate_id
    for transform in lint_input.transforms:
        if transform.class_name in DEFAULT_KEY_COLUMNS:
            actual = transform.settings.get(KEY_OPTION, DEFAULT_KEY_COLUMNS[transform.class_name])
            if actual != column:
                yield mismatch(transform.prefix + KEY_OPTION, actual, column)
        elif transform.class_name == VALUE_TO_KEY and split_list(transform.settings.get("fields", "")) != [column]:
            yield mismatch(f"{transform.prefix}fields", transform.settings.get("fields"), column)


@RULES.rule(
    "route.columns",
    "routers read the columns that the pipeline file names",
    reason="if a column does not exist, every row becomes a dead letter, or the records lack the column's value",
)
def check_columns(lint_input: LintInput) -> Iterator[Finding]:
    column_names = lint_input.pipeline.source.columns.model_dump()
    for transform in lint_input.transforms:
        defaults = {ROUTER: COLUMN_KEYS, EVENT_ROUTER: EVENT_ROUTER_COLUMNS}.get(transform.class_name, {})
        for key, default in defaults.items():
            actual, expected = transform.settings.get(key, default), column_names[COLUMN_KEYS[key]]
            if actual != expected:
                yield mismatch(transform.prefix + key, actual, expected)
    version_column = lint_input.pipeline.source.schema_version_column
    for router in lint_input.routers:
        if router.settings.get(VERSION_OPTION) != version_column:
            yield mismatch(router.prefix + VERSION_OPTION, router.settings.get(VERSION_OPTION), version_column)


@RULES.rule(
    "route.table",
    "`table` of OutboxRouter is `source.table` in the pipeline file",
    reason="OutboxRouter rejects records from other tables, and the task stops",
)
def check_table(lint_input: LintInput) -> Iterator[Finding]:
    expected = lint_input.pipeline.source.table
    for router in lint_input.routers:
        if router.settings.get("table", expected) != expected:
            yield mismatch(f"{router.prefix}table", router.settings["table"], expected)


@RULES.rule(
    "route.message-prefix",
    "if `source.message_prefix` is set, the connector and the router read logical decoding messages with this prefix; "
    "otherwise they read the outbox table",
    reason="a connector that reads messages while events are rows, or rows while events are messages, delivers nothing",
)
def check_message_prefix(lint_input: LintInput) -> Iterator[Finding]:
    expected, actual = lint_input.pipeline.source.message_prefix, lint_input.config.get(MESSAGE_PREFIXES)
    if lint_input.config and actual != expected:
        remedy = f"set connector.template to outbox-postgres{'-messages' if expected else ''}"
        yield violation(f"{MESSAGE_PREFIXES}={actual or UNSET}", expected or UNSET, remedy)
    for router in lint_input.routers:
        prefix = router.settings.get("message.prefix")
        if actual is not None and prefix != actual:
            yield mismatch(f"{router.prefix}message.prefix", prefix, actual)


@RULES.rule(
    "dead-letter",
    "without `invalid.rows=fail`, OutboxRouter has a dead letter topic that `apply` creates without compaction",
    reason="compaction removes all dead letters of a key except the latest, and a missing topic stops the task",
)
def check_dead_letter(lint_input: LintInput) -> Iterator[Finding]:
    for router in lint_input.routers:
        if router.settings.get("invalid.rows", "dead-letter") == "fail":
            continue
        key, expected = f"{router.prefix}dead.letter.topic", lint_input.pipeline.dead_letter_topic
        name = router.settings.get("dead.letter.topic")
        topic = lint_input.topics.get(name or "")
        if name is None:
            problem = f"{key} is not set"
        elif topic is None:
            problem = f"{key}={name}: `apply` does not create this topic"
        elif "compact" in topic.config["cleanup.policy"]:
            problem = f"{key}={name}: this topic is compacted"
        else:
            continue
        yield violation(problem, expected, f"set {key} to {expected}")


@RULES.rule(
    "transaction-topic",
    "`provide.transaction.metadata` requires `connector.transaction_metadata`, and `transactions` in `pass.through`",
    reason="with `connector.transaction_metadata`, `apply` creates the topic; unless `pass.through` contains "
    "`transactions`, OutboxRouter rejects transaction metadata records and the task stops",
)
def check_transaction_topic(lint_input: LintInput) -> Iterator[Finding]:
    if lint_input.config.get("provide.transaction.metadata", "false").lower() != "true":
        return
    if lint_input.pipeline.transaction_topic not in lint_input.topics:
        actual, expected = "provide.transaction.metadata=true", "connector.transaction_metadata: true"
        yield violation(f"{actual}, but `apply` creates no topic", expected, f"set {expected} in the pipeline file")
    for router in lint_input.routers:
        if "transactions" not in split_list(router.settings.get("pass.through", "")):
            key = f"{router.prefix}pass.through"
            yield violation(f"{key} does not list transactions", "transactions", f"add transactions to {key}")


@RULES.rule(
    "route.options",
    "OutboxRouter's options for rows, payloads and headers have the values from the pipeline file",
    reason="a copy of an older template lacks new options, so the router does not apply them",
)
def check_options(lint_input: LintInput) -> Iterator[Finding]:
    for router in lint_input.routers:
        expected = {("", option): value for option, value in _source_options(lint_input.pipeline.source).items()}
        for name in router.aggregates:
            aggregate = lint_input.pipeline.routed.get(name)
            if aggregate is not None:
                expected |= {(f"aggregate.{name}.", key): value for key, value in _aggregate_options(aggregate).items()}
        for (option_prefix, option), value in expected.items():
            actual = router.settings.get(option_prefix + option, OPTION_DEFAULTS.get(option, "")).strip()
            if _normalized(option, actual) != _normalized(option, value):
                yield mismatch(router.prefix + option_prefix + option, actual, value)


def _source_options(source: Source) -> dict[str, str]:
    """Return the router options that the source requires. An empty value means that the option is not set."""
    return {
        PLACEMENT_OPTION: ",".join(f"{column}:header:{name}" for column, name in source.header_columns.items()),
        "cloudevents.source": source.cloudevents_source or "",
        "table.op.invalid.behavior": "fatal" if source.updated_rows == "fail" else source.updated_rows,
        "deleted.rows": source.deleted_rows,
    }


def _aggregate_options(aggregate: Aggregate) -> dict[str, str]:
    return {
        "payload.format": aggregate.payload,
        "unknown.fields": aggregate.unknown_fields,
        "tombstone.event.types": ",".join(aggregate.tombstone_event_types),
    }


def _normalized(option: str, text: str) -> object:
    """Return a canonical form, which ignores the order of the list and reads COLUMN:header as COLUMN:header:COLUMN."""
    if option not in LIST_OPTIONS:
        return text
    list_items = split_list(text)
    if option == PLACEMENT_OPTION:
        list_items = [f"{item}:{item.split(':')[0]}" if item.count(":") == 1 else item for item in list_items]
    return sorted(list_items)
