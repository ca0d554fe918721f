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
    valid_input,
    with_messages,
    with_payloads,
    with_source,
    with_transforms,
)

from outbox_kit.linting import LintInput

BOOK = f"{ROUTER}aggregate.book"


def with_key(key: str, value: str | None) -> Callable[[], LintInput]:
    return lambda: configured(valid_input(), {key: value})


def with_settings(**changes: str | None) -> Callable[[], LintInput]:
    return lambda: setting(**changes)


def with_chain(**changes: str) -> Callable[[], LintInput]:
    return lambda: with_transforms({**CHAIN, **{key.replace("__", "."): value for key, value in changes.items()}})


def with_event_router(key: str, value: str) -> Callable[[], LintInput]:
    return lambda: with_transforms({**EVENT_ROUTER, f"transforms.outbox.{key}": value})


def without_option(key: str, valid: Callable[[], LintInput]) -> Callable[[], LintInput]:
    """Return an input whose template is older than the option, so that the file sets it but the config lacks it."""
    return lambda: configured(valid(), {f"{ROUTER}{key}": None})


# Options of OutboxRouter that the pipeline file sets, each with an input whose pipeline sets the option.
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
# Options of OutboxRouter that only the connector config sets.
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
    keys: dict[str, str | None] = {key: None for key in valid_input().config if key.startswith(f"{BOOK}.")}
    return configured(valid_input(), {**keys, f"{ROUTER}aggregates": "author,outbox-canary"})


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
    *((f"setting.{key}", with_key(key, value)) for key, value in WRONG_SETTINGS),
    # converters of every template
    ("value-converter", with_chain(value__converter="org.apache.kafka.connect.converters.ByteArrayConverter")),
    ("value-converter", with_key("value.converter.delegate.converter.type", None)),
    ("value-converter", with_key("value.converter.delegate.converter.type.schemas.enable", "true")),
    ("dead-letter-queue", with_key("errors.deadletterqueue.topic.name", "library.dead-letter")),
    ("snapshot-rows", with_key(f"{ROUTER}snapshot.rows", "route")),
    ("signals", with_key("signal.data.collection", "public.signals")),
    ("topic-names", with_key("topic.delimiter", "_")),
    ("topic-names", with_key("topic.naming.strategy", "io.debezium.schema.DefaultUnicodeTopicNamingStrategy")),
    ("no-effect", with_key("slot.failover", "true")),
    ("no-effect", with_key("heartbeat.topics.prefix", "beats")),
    # heartbeats
    ("heartbeat.interval", with_key("heartbeat.interval.ms", "0")),
    ("heartbeat.interval", with_key("heartbeat.interval.ms", None)),
    ("heartbeat.query", with_key("heartbeat.action.query", None)),
    ("heartbeat.query", with_key("heartbeat.action.query", "update public.heartbeat set at = now()")),
    (
        "heartbeat.query",
        with_key("heartbeat.action.query", "select pg_logical_emit_message(true, 'outbox-heartbeat', '')"),
    ),
    ("heartbeat.prefix", with_key("message.prefix.exclude.list", None)),
    ("heartbeat.prefix", with_key("message.prefix.exclude.list", "outbox")),
    ("heartbeat.prefix", lambda: with_messages(message__prefix__exclude__list="outbox-heartbeat")),
    (
        "heartbeat.prefix",
        lambda: with_messages(
            prefix="outbox.*",
            message__prefix__include__list="outbox.*",
            transforms__outbox__message__prefix="outbox.*",
        ),
    ),
    ("heartbeat.topic", with_key("topic.heartbeat.prefix", "beats")),
    # routes
    ("route.declared", with_key(f"{BOOK}.topic", "library.books")),
    ("route.declared", with_event_router("route.topic.replacement", "outbox.event.${routedByValue}")),
    ("route.declared", with_chain(transforms__topic__replacement="library.books")),
    ("route.declared", with_chain(transforms__topic__regex="nothing")),
    ("route.aggregates", without_book),
    ("route.aggregates", with_key(f"{BOOK}.topic", "library.author")),
    ("route.partitions", with_key(f"{BOOK}.partitions", "8")),
    (
        "route.key-column",
        with_key(f"{ROUTER}table.field.event.key", "id"),
    ),
    ("route.key-column", with_event_router("table.field.event.key", "aggregateid")),
    ("route.key-column", with_chain(transforms__key__fields="aggregate_id,id")),
    ("route.columns", with_key(f"{ROUTER}route.by.field", "aggregatetype")),
    ("route.columns", with_key(f"{ROUTER}table.field.event.headers", "meta")),
    ("route.columns", with_event_router("table.field.event.payload", "body")),
    ("route.columns", with_key(f"{ROUTER}table.field.event.schema.version", "version")),
    *(("route.options", without_option(key, valid)) for key, valid in OPTIONS_IN_THE_FILE),
    *(("route.options", with_key(f"{ROUTER}{key}", value)) for key, value in OPTIONS_IN_THE_CONFIG),
    ("route.keys", with_key(f"{BOOK}.partition", "4")),
    ("route.keys", with_key(f"{BOOK}.payload.fromat", "avro")),
    ("route.keys", with_key(f"{BOOK}.tombstone.types", "Lost")),
    ("route.keys", with_key(f"{ROUTER}aggregate.boook.topic", "library.book")),
    ("route.keys", with_key(f"{BOOK}.schema.2.id", "7")),
    ("route.schemas", with_key(f"{BOOK}.schema.1", None)),
    ("route.schemas", with_key(f"{BOOK}.schema.1", '"string"')),
    ("route.schemas", with_key(f"{BOOK}.schema.1.id", "one")),
    ("route.schemas", with_key(f"{BOOK}.schema.1.id", None)),
    ("route.partition-count", with_key(f"{BOOK}.partitions", None)),
    ("route.table", with_key(f"{ROUTER}table", "public.other")),
    ("route.message-prefix", lambda: with_messages(transforms__outbox__message__prefix="other")),
    ("route.message-prefix", lambda: with_messages(prefix=None)),
    ("route.message-prefix", lambda: with_messages(prefix="other")),
    ("route.message-prefix", lambda: replace(valid_input(), pipeline=with_messages().pipeline)),
    ("dead-letter", with_key(f"{ROUTER}dead.letter.topic", "library.dead")),
    ("dead-letter", with_key(f"{ROUTER}dead.letter.topic", "library.book")),
    ("dead-letter", with_key(f"{ROUTER}dead.letter.topic", None)),
    (
        "transaction-topic",
        with_settings(provide__transaction__metadata="true", transforms__outbox__pass__through="transactions"),
    ),
    # sizes
    ("size.router", with_key("producer.override.max.request.size", "1048576")),
    ("size.router", with_key(f"{ROUTER}max.record.bytes", "2000000")),
    ("size.topic", with_key("producer.override.max.request.size", "1100000")),
    ("size.buffer", with_key("producer.override.buffer.memory", "1000000")),
    (
        "size.batch",
        with_key("producer.override.batch.size", "1100000"),
    ),
    ("time.delivery", with_key("producer.override.delivery.timeout.ms", "30000")),
    ("size.config", with_key("column.exclude.list", "x" * 520 * 1024)),
    ("size.config", with_key("column.exclude.list", "x" * 950 * 1024)),
    (
        "schema.unions",
        with_key(
            f"{BOOK}.schema.1",
            '{"type":"record","name":"B","fields":[{"name":"cover","type":["null","bytes","string"]}]}',
        ),
    ),
    ("schema.docs", with_key(f"{BOOK}.schema.1", '{"type":"record","name":"B","doc":"text","fields":[]}')),
    ("placeholders", with_key("database.user", "${USER}")),
    ("placeholders", with_key("database.user", "${env:USER")),
    (
        "placeholders",
        with_key(f"{BOOK}.schema.1", '{"type":"record","name":"B","aliases":["${env:X}"],"fields":[]}'),
    ),
    # secrets
    ("secret.connector", with_key("database.password", "s3cret")),
    ("secret.connector", with_key("value.converter.basic.auth.user.info", "me:s3cret")),
    (
        "secret.connector",
        with_key("producer.override.sasl.jaas.config", 'x required username="me" password="s3cret";'),
    ),
    ("secret.connector", with_key("driver.proxy", "http://me:s3cret@proxy.example.internal")),
    ("secret.connector", with_key("producer.override.ssl.keystore.key", "-----BEGIN PRIVATE KEY-----")),
    ("secret.connection", with_key("database.sslmode", "verify-ca")),
    ("secret.connection", with_key("database.sslmode", None)),
    # aliases
    ("alias.typed", with_key("transforms", "outbox,outbx")),
    ("alias.typed", with_settings(predicates="beat", transforms__outbox__predicate="beat")),
    ("alias.typed", with_key("transforms", "outbox,outbox")),
    ("alias.listed", with_key("transforms.extra.type", "org.apache.kafka.connect.transforms.Filter")),
    (
        "alias.listed",
        with_key("predicates.beat.type", "org.apache.kafka.connect.transforms.predicates.HasHeaderKey"),
    ),
    ("alias.predicate", with_key(f"{ROUTER}predicate", "beat")),
    ("alias.predicate", with_key(f"{ROUTER}negate", "true")),
    (
        "alias.predicate",
        with_settings(
            predicates="beat", predicates__beat__type="org.apache.kafka.connect.transforms.predicates.HasHeaderKey"
        ),
    ),
]
