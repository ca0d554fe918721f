"""Connector settings that the promise depends on: key, what is allowed, why. Applied to the rendered config.

Each was run or read in Debezium's and Kafka's source; a template of the user's own is judged as ours are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from outbox_kit.connector_config import MESSAGES, ROUTER, items, number
from outbox_kit.linting.lint_input import Target
from outbox_kit.linting.rule import Finding, Rule, rule
from outbox_kit.rules import Severity

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
LONGEST_BLOCK_MS = 600_000

Allowed = Callable[[Target], tuple[str, ...]]


@dataclass(frozen=True)
class Setting:
    """A key, the values that it may have, and why. `optional`: left out, Connect or Debezium does the same."""

    key: str
    allowed: tuple[str, ...] | Allowed
    why: str
    optional: bool = False
    only_with: str = ""  # a transform

    @property
    def rule(self) -> Rule:
        """`lint.setting.KEY`."""
        allowed = "as the files say" if callable(self.allowed) else " or ".join(f"`{each}`" for each in self.allowed)
        optional = ", or left out" if self.optional else ""
        only_with = f" (with `{self.only_with.rsplit('.', 1)[-1]}`)" if self.only_with else ""
        return rule(f"setting.{self.key}", f"`{self.key}` is {allowed}{optional}{only_with}", why=self.why)(self.look)

    def values(self, target: Target) -> tuple[str, ...]:
        return self.allowed(target) if callable(self.allowed) else self.allowed

    def look(self, target: Target) -> Iterator[Finding]:
        """Nothing where the value is allowed, or the config was not rendered."""
        if not target.config or (self.only_with and not target.uses(self.only_with)):
            return
        value = target.config.get(self.key)
        values = self.values(target)
        if not values or (value is None and self.optional):
            return
        if value is None or value.lower() not in [each.lower() for each in values]:
            seen = f"{self.key} is not set" if value is None else f"{self.key}={value}"
            expected = " or ".join(values)
            yield Finding(seen, f"{self.key}={expected}", f"set {self.key} to {expected} in the template")


def _table(target: Target) -> tuple[str, ...]:
    """The variant without a table captures none."""
    return () if MESSAGES in target.config else (target.pipeline.source.table,)


SETTINGS = (
    Setting(
        "connector.class",
        ("io.debezium.connector.postgresql.PostgresConnector", "PostgresConnector", "PostgresSource"),
        "every other rule is about this connector",
    ),
    Setting("tasks.max", ("1",), "one slot is read by one task; Debezium never starts more", optional=True),
    Setting("plugin.name", ("pgoutput",), "`apply` makes the slot with it; Debezium's default is decoderbufs"),
    Setting(
        "topic.prefix",
        lambda target: (target.pipeline.prefix,),
        "offsets, heartbeats and topics are found under the prefix of the pipeline file",
    ),
    Setting(
        "slot.name",
        lambda target: (target.pipeline.source.slot,),
        "Debezium would make a slot of its own, at the present end of the log",
    ),
    Setting(
        "publication.name",
        lambda target: (target.pipeline.source.publication,),
        "`apply` makes and checks the publication of the pipeline file",
    ),
    Setting(
        "publication.autocreate.mode",
        ("disabled",),
        "a publication made after the slot loses rows on PostgreSQL 18 with no more than a server warning",
    ),
    Setting("slot.drop.on.stop", ("false",), "a dropped slot loses what is written meanwhile", optional=True),
    Setting("table.include.list", _table, "rows of another table would be refused, and stop the task"),
    Setting("snapshot.mode", ("no_data",), "a snapshot emits old versions in heap order and brings old states back"),
    Setting(
        "offset.mismatch.strategy",
        ("no_validation",),
        "trust_slot and trust_greater_lsn make a new slot in place of a lost one and go on: silent loss",
        optional=True,
    ),
    Setting(
        "lsn.flush.mode",
        ("connector",),
        "the slot may move only over what Kafka has acknowledged",
        optional=True,
    ),
    Setting(
        "event.processing.failure.handling.mode",
        ("fail",),
        "the others skip an event that cannot be read, and acknowledge it",
        optional=True,
    ),
    Setting(
        "errors.tolerance",
        ("none",),
        "on a source `all` counts a failed send as skipped and acknowledges the row: silent loss",
        optional=True,
    ),
    Setting(
        "errors.log.include.messages",
        ("false",),
        "payloads would stand in the workers' logs",
        optional=True,
    ),
    Setting(
        "exactly.once.support",
        lambda target: (target.environment.connector.exactly_once,),
        "`required` refuses a worker without it; the environment file decides (connector.exactly_once)",
    ),
    Setting("producer.override.acks", ("all", "-1"), "one broker's loss would lose acknowledged rows", optional=True),
    Setting(
        "producer.override.enable.idempotence",
        ("true",),
        "a retried send could overtake a newer one of the same key",
        optional=True,
    ),
    Setting(
        "key.converter",
        (STRING_CONVERTER,),
        "the key is raw UTF-8: framed, partition and compaction identity change with the schema",
        only_with=ROUTER,
    ),
    Setting(
        "header.converter",
        (STRING_CONVERTER,),
        "the default one writes a header of digits so that it is read back as a number",
        only_with=ROUTER,
    ),
    Setting(
        "value.converter",
        (BINARY_DATA_CONVERTER,),
        "the router hands over bytes, and heartbeats are Structs: this one takes both",
        only_with=ROUTER,
    ),
)


@rule(
    "setting.producer.override.max.block.ms",
    f"`producer.override.max.block.ms` is set, to {LONGEST_BLOCK_MS} at most",
    why="Connect's own value is for ever: a missing topic, or a partition beyond the count, hangs while RUNNING",
)
def max_block(target: Target) -> Iterator[Finding]:
    key = "producer.override.max.block.ms"
    value = target.config.get(key)
    if target.config and not 0 < number(value, 0) <= LONGEST_BLOCK_MS:
        seen = f"{key} is not set" if value is None else f"{key}={value}"
        yield Finding(seen, f"1 to {LONGEST_BLOCK_MS}", f"set {key} to 60000 in the template")


@rule(
    "setting.skipped.operations",
    "`skipped.operations` leaves inserts (`c`) in",
    why="the connector would drop every outbox row before the transform, and acknowledge it",
)
def skipped_operations(target: Target) -> Iterator[Finding]:
    value = target.config.get("skipped.operations", "t")
    if "c" in items(value):
        yield Finding(f"skipped.operations={value}", "no `c` in it", "leave skipped.operations out")


@rule(
    "setting.event.converting.failure.handling.mode",
    "`event.converting.failure.handling.mode` is `fail`",
    why="Debezium's default leaves a column that it cannot convert empty: an empty payload is a tombstone",
)
def converting(target: Target) -> Iterator[Finding]:
    key = "event.converting.failure.handling.mode"
    value = target.config.get(key)
    if target.config and value != "fail":
        seen = f"{key} is not set" if value is None else f"{key}={value}"
        yield Finding(seen, f"{key}=fail", f"set {key} to fail in the template")


@rule(
    "value-converter",
    "no ByteArrayConverter for values; BinaryDataConverter has JsonConverter, without schemas, as its delegate",
    why="heartbeats and transaction boundaries are Structs: ByteArrayConverter dies on the first one",
)
def value_converter(target: Target) -> Iterator[Finding]:
    converter = target.config.get("value.converter")
    remedy = f"set value.converter={BINARY_DATA_CONVERTER} and {DELEGATE}={JSON_CONVERTER}"
    if converter == BYTES_CONVERTER:
        yield Finding(f"value.converter={converter}", BINARY_DATA_CONVERTER, remedy)
    if converter != BINARY_DATA_CONVERTER:
        return
    delegate = target.config.get(DELEGATE)
    if delegate is None:
        yield Finding(f"{DELEGATE} is not set", JSON_CONVERTER, remedy)
    if delegate == JSON_CONVERTER and target.config.get(f"{DELEGATE}.schemas.enable") != "false":
        key = f"{DELEGATE}.schemas.enable"
        yield Finding(f"{key} is not false", f"{key}=false", f"set {key}=false: heartbeats stay small")


@rule(
    "dead-letter-queue",
    "no `errors.deadletterqueue.*`",
    why="they exist for sinks only: on a source nothing is ever written there; OutboxRouter has its own dead letters",
)
def dead_letter_queue(target: Target) -> Iterator[Finding]:
    for key in target.config:
        if key.startswith("errors.deadletterqueue."):
            yield Finding(f"{key} is set", "left out", "leave it out; see dead.letter.topic of OutboxRouter")


@rule(
    "snapshot-rows",
    "OutboxRouter has `snapshot.rows=fail`",
    why="rows that a snapshot read bring old states back; `outbox backfill` writes the newest state instead",
)
def snapshot_rows(target: Target) -> Iterator[Finding]:
    for transform in target.transforms:
        value = transform.settings.get("snapshot.rows", "fail")
        if transform.kind == ROUTER and value != "fail":
            key = f"transforms.{transform.alias}.snapshot.rows"
            yield Finding(f"{key}={value}", f"{key}=fail", "set it to fail; use `outbox backfill`")


@rule(
    "signals",
    "no way to ask for an incremental snapshot (`signal.*`)",
    why="an incremental snapshot stamps old rows with new positions: consumers would take them for newer",
)
def signals(target: Target) -> Iterator[Finding]:
    for key in target.config:
        if key.startswith("signal."):
            yield Finding(f"{key} is set", "left out", "leave it out; use `outbox backfill` or `outbox republish`")


@rule(
    "topic-names",
    "Debezium names its own topics as it does by default: no " + ", ".join(f"`{key}`" for key in NAMING),
    why="`apply` makes topics by the default names, and Connect's producer makes none",
)
def topic_names(target: Target) -> Iterator[Finding]:
    for key in NAMING:
        if key in target.config:
            yield Finding(f"{key}={target.config[key]}", "left out", f"leave {key} out")


@rule(
    "no-effect",
    "no setting that does nothing here: " + ", ".join(f"`{key}`" for key in WITHOUT_EFFECT),
    why="publication and slot are made before the connector, and heartbeats are named by `topic.heartbeat.prefix`",
    severity=Severity.WARNING,
)
def no_effect(target: Target) -> Iterator[Finding]:
    for key in WITHOUT_EFFECT:
        if target.config.get(key, "false").lower() != "false":
            yield Finding(f"{key}={target.config[key]}", "left out", f"leave {key} out; `outbox apply` sees to it")


RULES = (
    *(setting.rule for setting in SETTINGS),
    max_block,
    skipped_operations,
    converting,
    value_converter,
    dead_letter_queue,
    snapshot_rows,
    signals,
    topic_names,
    no_effect,
)
