"""One violation for each rule about the rendered config."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.unit.linting.samples import (
    CHAIN,
    EVENT_ROUTER,
    ROUTER,
    configured,
    setting,
    target,
    with_messages,
    with_payloads,
    with_source,
    with_transforms,
)

from outbox_kit.linting import LintInput

BOOK = f"{ROUTER}aggregate.book"


def changed(key: str, value: str | None) -> Callable[[], LintInput]:
    return lambda: configured(target(), {key: value})


def several(**changes: str | None) -> Callable[[], LintInput]:
    return lambda: setting(**changes)


def chain(**changes: str) -> Callable[[], LintInput]:
    return lambda: with_transforms({**CHAIN, **{key.replace("__", "."): value for key, value in changes.items()}})


def event_router(key: str, value: str) -> Callable[[], LintInput]:
    return lambda: with_transforms({**EVENT_ROUTER, f"transforms.outbox.{key}": value})


def without(key: str, valid: Callable[[], LintInput]) -> Callable[[], LintInput]:
    """Return an input whose template is older than the option: the file sets it, and the config lacks it."""
    return lambda: configured(valid(), {f"{ROUTER}{key}": None})


# Options of OutboxRouter that the pipeline file sets, and an input whose pipeline sets it.
OPTIONS_IN_THE_FILE: list[tuple[str, Callable[[], LintInput]]] = [
    ("table.fields.additional.placement", lambda: with_source(header_columns={"tenant": "tenant", "seq": "x-seq"})),
    ("cloudevents.source", lambda: with_source(cloudevents_source="/library")),
    ("table.op.invalid.behavior", lambda: with_source(updated_rows="warn")),
    ("deleted.rows", lambda: with_source(deleted_rows="ignore")),
    ("aggregate.book.payload.format", lambda: with_payloads("avro")),
    ("aggregate.outbox-canary.payload.format", lambda: with_payloads("avro")),
    ("aggregate.book.unknown.fields", lambda: with_payloads("json", unknown_fields="ignore")),
    ("aggregate.book.tombstone.event.types", lambda: with_payloads("text", tombstone_event_types=["Lost"])),
]
# Options of OutboxRouter that only the config sets.
OPTIONS_IN_THE_CONFIG = [
    ("table.fields.additional.placement", "tenant:header"),
    ("cloudevents.source", "/other"),
    ("table.op.invalid.behavior", "warn"),
    ("deleted.rows", "ignore"),
    ("aggregate.book.payload.format", "confluent-avro"),
    ("aggregate.book.unknown.fields", "ignore"),
    ("aggregate.book.tombstone.event.types", "Lost"),
]


def without_book() -> LintInput:
    """Return an input whose router has no route for books."""
    keys: dict[str, str | None] = {key: None for key in target().config if key.startswith(f"{BOOK}.")}
    return configured(target(), {**keys, f"{ROUTER}aggregates": "author,outbox-canary"})


WRONG_SETTINGS = [
    ("connector.class", "io.debezium.connector.mysql.MySqlConnector"),
    ("tasks.max", "2"),
    ("plugin.name", "decoderbufs"),
    ("plugin.name", None),
    ("topic.prefix", "other"),
    ("slot.name", "other"),
    ("publication.name", "other"),
    ("publication.autocreate.mode", "filtered"),
    ("publication.autocreate.mode", None),
    ("slot.drop.on.stop", "true"),
    ("table.include.list", "public.other"),
    ("table.include.list", None),
    ("snapshot.mode", "initial"),
    ("snapshot.mode", "when_needed"),
    ("snapshot.mode", None),
    ("offset.mismatch.strategy", "trust_slot"),
    ("offset.mismatch.strategy", "trust_greater_lsn"),
    ("lsn.flush.mode", "connector_and_driver"),
    ("errors.tolerance", "all"),
    ("errors.log.include.messages", "true"),
    ("exactly.once.support", "requested"),
    ("exactly.once.support", None),
    ("producer.override.acks", "1"),
    ("producer.override.enable.idempotence", "false"),
    ("producer.override.max.block.ms", None),
    ("producer.override.max.block.ms", "9223372036854775807"),
    ("key.converter", "org.apache.kafka.connect.json.JsonConverter"),
    ("key.converter", None),
    ("header.converter", None),
    ("value.converter", "org.apache.kafka.connect.json.JsonConverter"),
    ("skipped.operations", "c,u"),
    ("event.processing.failure.handling.mode", "skip"),
    ("event.converting.failure.handling.mode", "warn"),
    ("event.converting.failure.handling.mode", None),
]

SETTING_CASES: list[tuple[str, Callable[[], LintInput]]] = [
    *((f"setting.{key}", changed(key, value)) for key, value in WRONG_SETTINGS),
    # converters of every template
    ("value-converter", chain(value__converter="org.apache.kafka.connect.converters.ByteArrayConverter")),
    ("value-converter", changed("value.converter.delegate.converter.type", None)),
    ("value-converter", changed("value.converter.delegate.converter.type.schemas.enable", "true")),
    ("dead-letter-queue", changed("errors.deadletterqueue.topic.name", "library.dead-letter")),
    ("snapshot-rows", changed(f"{ROUTER}snapshot.rows", "route")),
    ("signals", changed("signal.data.collection", "public.signals")),
    ("topic-names", changed("topic.delimiter", "_")),
    ("topic-names", changed("topic.naming.strategy", "io.debezium.schema.DefaultUnicodeTopicNamingStrategy")),
    ("no-effect", changed("slot.failover", "true")),
    ("no-effect", changed("heartbeat.topics.prefix", "beats")),
    # heartbeats
    ("heartbeat.interval", changed("heartbeat.interval.ms", "0")),
    ("heartbeat.interval", changed("heartbeat.interval.ms", None)),
    ("heartbeat.query", changed("heartbeat.action.query", None)),
    ("heartbeat.query", changed("heartbeat.action.query", "update public.heartbeat set at = now()")),
    (
        "heartbeat.query",
        changed("heartbeat.action.query", "select pg_logical_emit_message(true, 'outbox-heartbeat', '')"),
    ),
    ("heartbeat.prefix", changed("message.prefix.exclude.list", None)),
    ("heartbeat.prefix", changed("message.prefix.exclude.list", "outbox")),
    ("heartbeat.prefix", lambda: with_messages(message__prefix__exclude__list="outbox-heartbeat")),
    (
        "heartbeat.prefix",
        lambda: with_messages(
            prefix="outbox.*",
            message__prefix__include__list="outbox.*",
            transforms__outbox__message__prefix="outbox.*",
        ),
    ),
    ("heartbeat.topic", changed("topic.heartbeat.prefix", "beats")),
    # routes
    ("route.declared", changed(f"{BOOK}.topic", "library.books")),
    ("route.declared", event_router("route.topic.replacement", "outbox.event.${routedByValue}")),
    ("route.declared", chain(transforms__topic__replacement="library.books")),
    ("route.declared", chain(transforms__topic__regex="nothing")),
    ("route.aggregates", without_book),
    ("route.aggregates", changed(f"{BOOK}.topic", "library.author")),
    ("route.partitions", changed(f"{BOOK}.partitions", "8")),
    (
        "route.key-column",
        changed(f"{ROUTER}table.field.event.key", "id"),
    ),
    ("route.key-column", event_router("table.field.event.key", "aggregateid")),
    ("route.key-column", chain(transforms__key__fields="aggregate_id,id")),
    ("route.columns", changed(f"{ROUTER}route.by.field", "aggregatetype")),
    ("route.columns", changed(f"{ROUTER}table.field.event.headers", "meta")),
    ("route.columns", event_router("table.field.event.payload", "body")),
    ("route.columns", changed(f"{ROUTER}table.field.event.schema.version", "version")),
    *(("route.options", without(key, valid)) for key, valid in OPTIONS_IN_THE_FILE),
    *(("route.options", changed(f"{ROUTER}{key}", value)) for key, value in OPTIONS_IN_THE_CONFIG),
    ("route.keys", changed(f"{BOOK}.partition", "4")),
    ("route.keys", changed(f"{BOOK}.payload.fromat", "avro")),
    ("route.keys", changed(f"{BOOK}.tombstone.types", "Lost")),
    ("route.keys", changed(f"{ROUTER}aggregate.boook.topic", "library.book")),
    ("route.keys", changed(f"{BOOK}.schema.2.id", "7")),
    ("route.schemas", changed(f"{BOOK}.schema.1", None)),
    ("route.schemas", changed(f"{BOOK}.schema.1", '"string"')),
    ("route.schemas", changed(f"{BOOK}.schema.1.id", "one")),
    ("route.schemas", changed(f"{BOOK}.schema.1.id", None)),
    ("route.partition-count", changed(f"{BOOK}.partitions", None)),
    ("route.table", changed(f"{ROUTER}table", "public.other")),
    ("route.message-prefix", lambda: with_messages(transforms__outbox__message__prefix="other")),
    ("route.message-prefix", lambda: with_messages(prefix=None)),
    ("route.message-prefix", lambda: with_messages(prefix="other")),
    ("route.message-prefix", lambda: replace(target(), pipeline=with_messages().pipeline)),
    ("dead-letter", changed(f"{ROUTER}dead.letter.topic", "library.dead")),
    ("dead-letter", changed(f"{ROUTER}dead.letter.topic", "library.book")),
    ("dead-letter", changed(f"{ROUTER}dead.letter.topic", None)),
    (
        "transaction-topic",
        several(provide__transaction__metadata="true", transforms__outbox__pass__through="transactions"),
    ),
    # sizes
    ("size.router", changed("producer.override.max.request.size", "1048576")),
    ("size.router", changed(f"{ROUTER}max.record.bytes", "2000000")),
    ("size.topic", changed("producer.override.max.request.size", "1100000")),
    ("size.buffer", changed("producer.override.buffer.memory", "1000000")),
    (
        "size.batch",
        changed("producer.override.batch.size", "1100000"),
    ),
    ("time.delivery", changed("producer.override.delivery.timeout.ms", "30000")),
    ("size.config", changed("column.exclude.list", "x" * 520 * 1024)),
    ("size.config", changed("column.exclude.list", "x" * 950 * 1024)),
    ("schema.docs", changed(f"{BOOK}.schema.1", '{"type":"record","name":"B","doc":"text","fields":[]}')),
    ("placeholders", changed("database.user", "${USER}")),
    ("placeholders", changed("database.user", "${env:USER")),
    (
        "placeholders",
        changed(f"{BOOK}.schema.1", '{"type":"record","name":"B","aliases":["${env:X}"],"fields":[]}'),
    ),
    # secrets
    ("secret.connector", changed("database.password", "s3cret")),
    ("secret.connector", changed("value.converter.basic.auth.user.info", "me:s3cret")),
    ("secret.connector", changed("producer.override.sasl.jaas.config", 'x required username="me" password="s3cret";')),
    ("secret.connector", changed("driver.proxy", "http://me:s3cret@proxy.example.internal")),
    ("secret.connector", changed("producer.override.ssl.keystore.key", "-----BEGIN PRIVATE KEY-----")),
    # aliases
    ("alias.typed", changed("transforms", "outbox,outbx")),
    ("alias.typed", several(predicates="beat", transforms__outbox__predicate="beat")),
    ("alias.typed", changed("transforms", "outbox,outbox")),
    ("alias.listed", changed("transforms.extra.type", "org.apache.kafka.connect.transforms.Filter")),
    ("alias.listed", changed("predicates.beat.type", "org.apache.kafka.connect.transforms.predicates.HasHeaderKey")),
    ("alias.predicate", changed(f"{ROUTER}predicate", "beat")),
    ("alias.predicate", changed(f"{ROUTER}negate", "true")),
    (
        "alias.predicate",
        several(
            predicates="beat", predicates__beat__type="org.apache.kafka.connect.transforms.predicates.HasHeaderKey"
        ),
    ),
]
