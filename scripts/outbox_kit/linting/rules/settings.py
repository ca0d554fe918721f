"""Define rules for connector settings that the delivery guarantees require, as tested with Debezium and Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from outbox_kit.connect.connector_config import (
    MAX_BLOCK_MS_LIMIT,
    MESSAGE_PREFIXES,
    PLACEHOLDER,
    ROUTER,
    parse_int,
    producer_setting,
    schema_texts,
    split_list,
)
from outbox_kit.linting.lint_rule import LintInput, LintRules, mismatch, violation
from outbox_kit.results.checks import Finding, Severity

STRING_CONVERTER = "org.apache.kafka.connect.storage.StringConverter"
BYTES_CONVERTER = "org.apache.kafka.connect.converters.ByteArrayConverter"
BINARY_DATA_CONVERTER = "io.debezium.converters.BinaryDataConverter"
JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"
DELEGATE_KEY = "value.converter.delegate.converter.type"
TOPIC_NAME_KEYS = ("topic.naming.strategy", "topic.delimiter", "topic.transaction", "topic.heartbeat.name")
KEYS_WITHOUT_EFFECT = (
    "publish.via.partition.root",
    "slot.failover",
    "replica.identity.autoset.values",
    "heartbeat.topics.prefix",
)
RULES = LintRules()
AllowedValues = Callable[[LintInput], tuple[str, ...]]


def _require(
    key: str, allowed: tuple[str, ...] | AllowedValues, reason: str, *, optional: bool = False, only_with: str = ""
) -> None:
    """Add the rule `lint.setting.KEY`: the key has one of the `allowed` values. An empty tuple allows any value.

    `optional` means that the key can be omitted, because its default in Connect or Debezium is an allowed value.
    `only_with` is the class of a transform. Configs without this transform pass.
    """
    values_text = "the value from the pipeline file or the environment file"
    if not callable(allowed):
        values_text = " or ".join(f"`{value}`" for value in allowed)
    condition = f"`{key}` is {values_text}" + (", or not set" if optional else "")
    condition += f" (with `{only_with.rsplit('.', 1)[-1]}`)" if only_with else ""

    @RULES.rule(f"setting.{key}", condition, reason=reason)
    def check(lint_input: LintInput) -> Iterator[Finding]:
        if not lint_input.config or (only_with and not lint_input.has_transform(only_with)):
            return
        value = lint_input.config.get(key)
        values = allowed(lint_input) if callable(allowed) else allowed
        if not values or (value is None and optional):
            return
        if value is None or value.lower() not in [allowed_value.lower() for allowed_value in values]:
            expected = " or ".join(values)
            yield violation(_assignment(key, value), f"{key}={expected}", f"set {key} to {expected} in the template")


def _assignment(key: str, value: str | None) -> str:
    return f"{key} is not set" if value is None else f"{key}={value}"


def _captured_table(lint_input: LintInput) -> tuple[str, ...]:
    """Return the outbox table as the only allowed value, or an empty tuple if events are logical decoding messages."""
    return () if MESSAGE_PREFIXES in lint_input.config else (lint_input.pipeline.source.table,)


_require(
    "connector.class",
    ("io.debezium.connector.postgresql.PostgresConnector", "PostgresConnector", "PostgresSource"),
    "the other rules apply only to this connector",
)
_require("tasks.max", ("1",), "the connector supports only one task", optional=True)
_require("plugin.name", ("pgoutput",), "`apply` creates the slot with pgoutput; Debezium's default is decoderbufs")
_require(
    "topic.prefix",
    lambda lint_input: (lint_input.pipeline.prefix,),
    "topic names and stored offsets contain the prefix from the pipeline file",
)
_require(
    "slot.name",
    lambda lint_input: (lint_input.pipeline.source.slot,),
    "otherwise Debezium would create another slot at the current end of the WAL and skip earlier rows",
)
_require(
    "publication.name",
    lambda lint_input: (lint_input.pipeline.source.publication,),
    "`apply` creates and checks the publication that the pipeline file names",
)
_require(
    "publication.autocreate.mode",
    ("disabled",),
    "if Debezium creates the publication after the slot, rows are lost, and PostgreSQL 18 only logs a warning",
)
_require(
    "slot.drop.on.stop",
    ("false",),
    "otherwise the connector drops the slot when it stops, and rows that are written afterwards are never delivered",
    optional=True,
)
_require("table.include.list", _captured_table, "the transform rejects rows of other tables, and the task stops")
_require("snapshot.mode", ("no_data",), "a snapshot sends rows in heap order, and old states can replace newer states")
_require(
    "offset.mismatch.strategy",
    ("no_validation",),
    "with trust_slot and trust_greater_lsn, a new slot replaces a lost slot without an error, and rows are lost",
    optional=True,
)
_require("lsn.flush.mode", ("connector",), "the slot must not pass a row that is not yet in Kafka", optional=True)
_require(
    "event.processing.failure.handling.mode",
    ("fail",),
    "the other modes skip and acknowledge an event that cannot be processed",
    optional=True,
)
_require(
    "errors.tolerance",
    ("none",),
    "with `all`, a source connector skips a record that cannot be sent and acknowledges its row",
    optional=True,
)
_require("errors.log.include.messages", ("false",), "payloads would appear in the workers' logs", optional=True)
_require(
    "exactly.once.support",
    lambda lint_input: (lint_input.environment.connector.exactly_once,),
    "connector.exactly_once sets this key; with `required`, Connect rejects the connector if a worker lacks support",
)
_require("producer.override.acks", ("all", "-1"), "otherwise rows are lost if a broker fails", optional=True)
_require(
    "producer.override.enable.idempotence",
    ("true",),
    "without idempotence, a retry could write a record after a later record of the same key",
    optional=True,
)
_require(
    "key.converter",
    (STRING_CONVERTER,),
    "keys are plain UTF-8; if keys contained a schema id, a new schema would change the key and its partition",
    only_with=ROUTER,
)
_require(
    "header.converter",
    (STRING_CONVERTER,),
    "with the default converter, a header value that consists of digits is read as a number",
    only_with=ROUTER,
)
_require(
    "value.converter",
    (BINARY_DATA_CONVERTER,),
    "the router's values are bytes and heartbeats are Structs, and this converter supports both",
    only_with=ROUTER,
)


@RULES.rule(
    "setting.producer.override.max.block.ms",
    f"`producer.override.max.block.ms` is set to {MAX_BLOCK_MS_LIMIT} or less",
    reason="with Connect's default, a missing topic or partition blocks the task forever while its state is RUNNING",
)
def check_max_block(lint_input: LintInput) -> Iterator[Finding]:
    key = "producer.override.max.block.ms"
    value = lint_input.config.get(key)
    if lint_input.config and not 0 < parse_int(value) <= MAX_BLOCK_MS_LIMIT:
        yield violation(_assignment(key, value), f"1 to {MAX_BLOCK_MS_LIMIT}", f"set {key} to 60000 in the template")


@RULES.rule(
    "setting.skipped.operations",
    "`skipped.operations` does not list inserts (`c`)",
    reason="otherwise the connector drops every outbox row before the transform, and acknowledges it",
)
def check_skipped_operations(lint_input: LintInput) -> Iterator[Finding]:
    value = lint_input.config.get("skipped.operations", "t")
    if "c" in split_list(value):
        yield violation(f"skipped.operations={value}", "a list without `c`", "remove skipped.operations")


_require(
    "event.converting.failure.handling.mode",
    ("fail",),
    "by default, Debezium writes null instead of a value that it cannot convert, and a null payload is a tombstone",
)


@RULES.rule(
    "value-converter",
    "`value.converter` is not ByteArrayConverter; BinaryDataConverter has a delegate, and a delegate that is a "
    "JsonConverter has `schemas.enable=false`",
    reason="ByteArrayConverter cannot convert heartbeats and transaction boundaries, which are Structs: the task fails",
)
def check_value_converter(lint_input: LintInput) -> Iterator[Finding]:
    converter = lint_input.config.get("value.converter")
    remedy = f"set value.converter={BINARY_DATA_CONVERTER} and {DELEGATE_KEY}={JSON_CONVERTER}"
    if converter == BYTES_CONVERTER:
        yield violation(f"value.converter={converter}", BINARY_DATA_CONVERTER, remedy)
    if converter != BINARY_DATA_CONVERTER:
        return
    delegate = lint_input.config.get(DELEGATE_KEY)
    if delegate is None:
        yield violation(f"{DELEGATE_KEY} is not set", JSON_CONVERTER, remedy)
    key = f"{DELEGATE_KEY}.schemas.enable"
    if delegate == JSON_CONVERTER and lint_input.config.get(key) != "false":
        yield violation(f"{key} is not false", f"{key}=false", f"set {key}=false, so that heartbeats are small")


@RULES.rule(
    "dead-letter-queue",
    "`errors.deadletterqueue.*` is not set",
    reason="Connect uses these settings only for sink connectors; OutboxRouter has the setting `dead.letter.topic`",
)
def check_dead_letter_queue(lint_input: LintInput) -> Iterator[Finding]:
    for key in lint_input.config:
        if key.startswith("errors.deadletterqueue."):
            yield violation(f"{key} is set", "not set", f"remove {key}, and set dead.letter.topic of OutboxRouter")


@RULES.rule(
    "snapshot-rows",
    "OutboxRouter has `snapshot.rows=fail`",
    reason="rows from a snapshot would overwrite newer states; `outbox backfill` writes the latest state instead",
)
def check_snapshot_rows(lint_input: LintInput) -> Iterator[Finding]:
    for router in lint_input.routers:
        if router.settings.get("snapshot.rows", "fail") != "fail":
            yield mismatch(f"{router.prefix}snapshot.rows", router.settings["snapshot.rows"], "fail")


@RULES.rule(
    "signals",
    "settings for incremental snapshots (`signal.*`) are not set",
    reason="an incremental snapshot sends old rows with new LSNs, and consumers treat these rows as newer states",
)
def check_signals(lint_input: LintInput) -> Iterator[Finding]:
    for key in lint_input.config:
        if key.startswith("signal."):
            yield violation(f"{key} is set", "not set", f"remove {key}; use `outbox backfill` or `outbox republish`")


@RULES.rule(
    "topic-names",
    "settings that change the names of heartbeat and transaction topics are not set: "
    + ", ".join(f"`{key}`" for key in TOPIC_NAME_KEYS),
    reason="`apply` creates topics with the default names, and Connect's producer does not create topics",
)
def check_topic_names(lint_input: LintInput) -> Iterator[Finding]:
    for key in TOPIC_NAME_KEYS:
        if key in lint_input.config:
            yield violation(f"{key}={lint_input.config[key]}", "not set", f"remove {key}")


@RULES.rule(
    "no-effect",
    "settings that have no effect are not set: " + ", ".join(f"`{key}`" for key in KEYS_WITHOUT_EFFECT),
    reason="`apply` creates the publication and the slot; the heartbeat prefix is set with `topic.heartbeat.prefix`",
    severity=Severity.WARNING,
)
def check_no_effect(lint_input: LintInput) -> Iterator[Finding]:
    for key in KEYS_WITHOUT_EFFECT:
        if lint_input.config.get(key, "false").lower() != "false":
            yield violation(f"{key}={lint_input.config[key]}", "not set", f"remove {key}")


@RULES.rule(
    "time.delivery",
    "the producer's `delivery.timeout.ms` is at least `linger.ms` + `request.timeout.ms`",
    reason="Kafka's producer rejects a lower value",
)
def check_delivery_timeout(lint_input: LintInput) -> Iterator[Finding]:
    delivery, linger, request = (
        producer_setting(lint_input.config, key) for key in ("delivery.timeout.ms", "linger.ms", "request.timeout.ms")
    )
    if delivery < linger + request:
        remedy = "increase connector.delivery_timeout_ms in the environment file, or decrease request.timeout.ms"
        yield violation(f"delivery.timeout.ms={delivery}", f"{linger + request} or more", remedy)


@RULES.rule(
    "placeholders",
    "`${` occurs only in placeholders `${provider:key}` and `${provider:path:key}`, and never in a schema",
    reason="Connect would resolve a placeholder in a schema, and uses a malformed placeholder as text without an error",
)
def check_placeholders(lint_input: LintInput) -> Iterator[Finding]:
    schemas = dict(schema_texts(lint_input.config))
    for key, value in lint_input.config.items():
        if "${" not in value or key.endswith((".route.topic.replacement", ".replacement")):
            continue
        if key in schemas:
            yield violation(f"{key} contains ${{", "\\u0024{ instead of ${", "use `version.text` in the template")
        elif "${" in PLACEHOLDER.sub("", value):
            expected = "${provider:key} or ${provider:path:key}"
            yield violation(f"{key} contains ${{ outside a valid placeholder", expected, "correct the placeholder")
