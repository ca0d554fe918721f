"""Rules for connector settings on which the delivery guarantees depend, as tested with Debezium and Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from outbox_kit.connector_config import MAX_BLOCK_MS_LIMIT, MESSAGE_PREFIXES, ROUTER, parse_int, split_list
from outbox_kit.linting.lint_input import LintInput
from outbox_kit.linting.lint_rule import LintRules, mismatch, violation
from outbox_kit.rules import Finding, Severity

STRING_CONVERTER = "org.apache.kafka.connect.storage.StringConverter"
BYTES_CONVERTER = "org.apache.kafka.connect.converters.ByteArrayConverter"
BINARY_DATA_CONVERTER = "io.debezium.converters.BinaryDataConverter"
JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"
DELEGATE = "value.converter.delegate.converter.type"
NAMING = ("topic.naming.strategy", "topic.delimiter", "topic.transaction", "topic.heartbeat.name")
WITHOUT_EFFECT = (
    "publish.via.partition.root",
    "slot.failover",
    "replica.identity.autoset.values",
    "heartbeat.topics.prefix",
)
RULES = LintRules()
Values = Callable[[LintInput], tuple[str, ...]]


def _setting(
    key: str, allowed: tuple[str, ...] | Values, reason: str, *, optional: bool = False, only_with: str = ""
) -> None:
    """Add `lint.setting.KEY`: the key has one of the allowed values.

    `optional` is for keys whose default in Connect or Debezium is allowed. `only_with` limits the rule to configs
    with that transform. An empty tuple of values allows anything.
    """
    shown = "as in the files" if callable(allowed) else " or ".join(f"`{value}`" for value in allowed)
    condition = f"`{key}` is {shown}" + (", or left out" if optional else "")
    condition += f" (with `{only_with.rsplit('.', 1)[-1]}`)" if only_with else ""

    @RULES.rule(f"setting.{key}", condition, reason=reason)
    def check(lint_input: LintInput) -> Iterator[Finding]:
        if not lint_input.config or (only_with and not lint_input.uses(only_with)):
            return
        value = lint_input.config.get(key)
        values = allowed(lint_input) if callable(allowed) else allowed
        if not values or (value is None and optional):
            return
        if value is None or value.lower() not in [entry.lower() for entry in values]:
            actual, expected = _shown(key, value), " or ".join(values)
            yield violation(actual, f"{key}={expected}", f"set {key} to {expected} in the template")


def _shown(key: str, value: str | None) -> str:
    return f"{key} is not set" if value is None else f"{key}={value}"


def _table(lint_input: LintInput) -> tuple[str, ...]:
    """Return the table to capture; none when events are logical messages."""
    return () if MESSAGE_PREFIXES in lint_input.config else (lint_input.pipeline.source.table,)


_setting(
    "connector.class",
    ("io.debezium.connector.postgresql.PostgresConnector", "PostgresConnector", "PostgresSource"),
    "every other rule is about this connector",
)
_setting("tasks.max", ("1",), "one task reads one slot; Debezium never starts more", optional=True)
_setting("plugin.name", ("pgoutput",), "`apply` creates the slot with it; Debezium's default is decoderbufs")
_setting(
    "topic.prefix",
    lambda lint_input: (lint_input.pipeline.prefix,),
    "offsets, heartbeats and topics use the prefix of the pipeline file",
)
_setting(
    "slot.name",
    lambda lint_input: (lint_input.pipeline.source.slot,),
    "Debezium would create a slot of its own, at the current end of the WAL",
)
_setting(
    "publication.name",
    lambda lint_input: (lint_input.pipeline.source.publication,),
    "`apply` creates and checks the publication of the pipeline file",
)
_setting(
    "publication.autocreate.mode",
    ("disabled",),
    "a publication created after the slot loses rows on PostgreSQL 18, with only a warning in the server log",
)
_setting(
    "slot.drop.on.stop",
    ("false",),
    "the connector never receives rows that are written after the slot is dropped",
    optional=True,
)
_setting("table.include.list", _table, "the transform rejects rows of another table, and the task stops")
_setting("snapshot.mode", ("no_data",), "a snapshot emits old row versions in heap order, and so restores old states")
_setting(
    "offset.mismatch.strategy",
    ("no_validation",),
    "trust_slot and trust_greater_lsn create a new slot in place of a lost one and continue: silent loss",
    optional=True,
)
_setting("lsn.flush.mode", ("connector",), "the slot may advance only over what Kafka has acknowledged", optional=True)
_setting(
    "event.processing.failure.handling.mode",
    ("fail",),
    "the other modes skip an event that cannot be read, and acknowledge it",
    optional=True,
)
_setting(
    "errors.tolerance",
    ("none",),
    "on a source `all` counts a failed send as skipped and acknowledges the row: silent loss",
    optional=True,
)
_setting("errors.log.include.messages", ("false",), "payloads would appear in the workers' logs", optional=True)
_setting(
    "exactly.once.support",
    lambda lint_input: (lint_input.environment.connector.exactly_once,),
    "`required` rejects a worker without it; connector.exactly_once of the environment file decides",
)
_setting("producer.override.acks", ("all", "-1"), "the loss of one broker would lose acknowledged rows", optional=True)
_setting(
    "producer.override.enable.idempotence",
    ("true",),
    "a retried send could be written after a later record of the same key",
    optional=True,
)
_setting(
    "key.converter",
    (STRING_CONVERTER,),
    "the key is raw UTF-8: with a schema id in it, partition and compaction change with the schema",
    only_with=ROUTER,
)
_setting(
    "header.converter",
    (STRING_CONVERTER,),
    "the default converter writes a header of digits in a form that is read back as a number",
    only_with=ROUTER,
)
_setting(
    "value.converter",
    (BINARY_DATA_CONVERTER,),
    "values of the router are bytes, those of heartbeats are Structs: this converter takes both",
    only_with=ROUTER,
)


@RULES.rule(
    "setting.producer.override.max.block.ms",
    f"`producer.override.max.block.ms` is set, to {MAX_BLOCK_MS_LIMIT} at most",
    reason="Connect's default is unlimited: at a missing topic or partition the task blocks while it is RUNNING",
)
def max_block(lint_input: LintInput) -> Iterator[Finding]:
    key = "producer.override.max.block.ms"
    value = lint_input.config.get(key)
    if lint_input.config and not 0 < parse_int(value) <= MAX_BLOCK_MS_LIMIT:
        yield violation(_shown(key, value), f"1 to {MAX_BLOCK_MS_LIMIT}", f"set {key} to 60000 in the template")


@RULES.rule(
    "setting.skipped.operations",
    "`skipped.operations` does not list inserts (`c`)",
    reason="the connector would drop every outbox row before the transform, and acknowledge it",
)
def skipped_operations(lint_input: LintInput) -> Iterator[Finding]:
    value = lint_input.config.get("skipped.operations", "t")
    if "c" in split_list(value):
        yield violation(f"skipped.operations={value}", "no `c` in it", "leave skipped.operations out")


_setting(
    "event.converting.failure.handling.mode",
    ("fail",),
    "Debezium's default sets a column that it cannot convert to null, and a null payload is a tombstone",
)


@RULES.rule(
    "value-converter",
    "no ByteArrayConverter for values; BinaryDataConverter has JsonConverter, without schemas, as its delegate",
    reason="heartbeats and transaction boundaries are Structs, which ByteArrayConverter cannot convert: the task fails",
)
def value_converter(lint_input: LintInput) -> Iterator[Finding]:
    converter = lint_input.config.get("value.converter")
    remedy = f"set value.converter={BINARY_DATA_CONVERTER} and {DELEGATE}={JSON_CONVERTER}"
    if converter == BYTES_CONVERTER:
        yield violation(f"value.converter={converter}", BINARY_DATA_CONVERTER, remedy)
    if converter != BINARY_DATA_CONVERTER:
        return
    delegate = lint_input.config.get(DELEGATE)
    if delegate is None:
        yield violation(f"{DELEGATE} is not set", JSON_CONVERTER, remedy)
    key = f"{DELEGATE}.schemas.enable"
    if delegate == JSON_CONVERTER and lint_input.config.get(key) != "false":
        yield violation(f"{key} is not false", f"{key}=false", f"set {key}=false, which keeps heartbeats small")


@RULES.rule(
    "dead-letter-queue",
    "no `errors.deadletterqueue.*`",
    reason="Connect writes it for sinks only; OutboxRouter has a dead letter topic of its own",
)
def dead_letter_queue(lint_input: LintInput) -> Iterator[Finding]:
    for key in lint_input.config:
        if key.startswith("errors.deadletterqueue."):
            yield violation(f"{key} is set", "left out", "leave it out; see dead.letter.topic of OutboxRouter")


@RULES.rule(
    "snapshot-rows",
    "OutboxRouter has `snapshot.rows=fail`",
    reason="rows read by a snapshot restore old states; `outbox backfill` writes the latest state instead",
)
def snapshot_rows(lint_input: LintInput) -> Iterator[Finding]:
    for router in lint_input.routers:
        if router.settings.get("snapshot.rows", "fail") != "fail":
            yield mismatch(f"{router.prefix}snapshot.rows", router.settings["snapshot.rows"], "fail")


@RULES.rule(
    "signals",
    "no settings for incremental snapshots (`signal.*`)",
    reason="an incremental snapshot gives old rows new positions, and consumers take them for later states",
)
def signals(lint_input: LintInput) -> Iterator[Finding]:
    for key in lint_input.config:
        if key.startswith("signal."):
            yield violation(f"{key} is set", "left out", "leave it out; use `outbox backfill` or `outbox republish`")


@RULES.rule(
    "topic-names",
    "Debezium's own topics have their default names: no " + ", ".join(f"`{key}`" for key in NAMING),
    reason="`apply` creates topics by the default names, and Connect's producer creates none",
)
def topic_names(lint_input: LintInput) -> Iterator[Finding]:
    for key in NAMING:
        if key in lint_input.config:
            yield violation(f"{key}={lint_input.config[key]}", "left out", f"leave {key} out")


@RULES.rule(
    "no-effect",
    "no setting without effect: " + ", ".join(f"`{key}`" for key in WITHOUT_EFFECT),
    reason="`apply` creates publication and slot, and `topic.heartbeat.prefix` names the heartbeats' topic",
    severity=Severity.WARNING,
)
def no_effect(lint_input: LintInput) -> Iterator[Finding]:
    for key in WITHOUT_EFFECT:
        if lint_input.config.get(key, "false").lower() != "false":
            yield violation(f"{key}={lint_input.config[key]}", "left out", f"leave {key} out; `outbox apply` does it")
