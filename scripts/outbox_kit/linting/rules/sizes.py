"""Sizes along the path of a record: one limit, `connector.max_record_bytes`, from which all others follow."""

from __future__ import annotations

import json
from collections.abc import Iterator

from outbox_kit.connector_config import PLACEHOLDER, ROUTER, number, schema_texts
from outbox_kit.kafka.state import FRAMING_BYTES
from outbox_kit.linting.lint_input import Target
from outbox_kit.linting.rule import Finding, rule
from outbox_kit.pipeline.avro import without_docs
from outbox_kit.rules import Severity

# The producer's own defaults (ProducerConfig).
MAX_REQUEST_SIZE = 1_048_576
BUFFER_MEMORY = 33_554_432
BATCH_SIZE = 16_384
REQUEST_TIMEOUT_MS = 30_000
DELIVERY_TIMEOUT_MS = 2_147_483_647  # of Connect (Worker.baseProducerProps)
# A consumer's, in librdkafka.
RECEIVE_MESSAGE_MAX_BYTES = 100_000_000
FETCH_KEYS = ("receive.message.max.bytes", "fetch.max.bytes", "max.partition.fetch.bytes", "fetch.message.max.bytes")
# A connector config is one record of Connect's config topic, whose producer and topic allow 1 MiB.
CONFIG_WARN_BYTES = 512 * 1024
CONFIG_FAIL_BYTES = 900 * 1024
RAISE = "leave it to the template, which derives it from connector.max_record_bytes of the environment file"


def _producer(target: Target, key: str, default: int) -> int:
    return number(target.config.get(f"producer.override.{key}"), default)


@rule(
    "size.router",
    "`max.record.bytes` of the router, with framing, fits into the producer's `max.request.size`",
    why="a larger record fails in the producer, where it stops the task, instead of becoming a dead letter",
)
def router(target: Target) -> Iterator[Finding]:
    allowed = _producer(target, "max.request.size", MAX_REQUEST_SIZE)
    for transform in target.transforms:
        limit = number(transform.settings.get("max.record.bytes"), target.environment.connector.max_record_bytes)
        if transform.kind == ROUTER and limit + FRAMING_BYTES > allowed:
            seen = f"max.record.bytes={limit}, max.request.size={allowed}"
            yield Finding(seen, f"max.request.size of {limit + FRAMING_BYTES} or more", RAISE)


@rule(
    "size.topic",
    "the producer's `max.request.size` is not above `max.message.bytes` of any topic",
    why="the broker would refuse the record: under exactly-once that surfaces at commit, and ends the task each time",
)
def topic(target: Target) -> Iterator[Finding]:
    sent = _producer(target, "max.request.size", MAX_REQUEST_SIZE)
    for declared in target.topics.values() if target.config else ():
        allowed = number(declared.config.get("max.message.bytes"), MAX_REQUEST_SIZE)
        if sent > allowed:
            seen = f"max.request.size={sent}, max.message.bytes={allowed} of topic {declared.name}"
            yield Finding(seen, f"max.message.bytes of {sent} or more", RAISE)


@rule(
    "size.buffer",
    "the producer's `buffer.memory` holds the largest record and a batch of each",
    why="a record that finds no room waits for max.block.ms and fails",
)
def buffer(target: Target) -> Iterator[Finding]:
    memory = _producer(target, "buffer.memory", BUFFER_MEMORY)
    largest = _producer(target, "max.request.size", MAX_REQUEST_SIZE) + _producer(target, "batch.size", BATCH_SIZE)
    if target.config and memory < largest:
        yield Finding(f"buffer.memory={memory}", f"{largest} or more", RAISE)


@rule(
    "size.batch",
    "the producer's `batch.size` is not above its `max.request.size`",
    why="a full batch would be larger than topics allow, and be split and sent again",
    severity=Severity.WARNING,
)
def batch(target: Target) -> Iterator[Finding]:
    size = _producer(target, "batch.size", BATCH_SIZE)
    allowed = _producer(target, "max.request.size", MAX_REQUEST_SIZE)
    if target.config and size > allowed:
        yield Finding(f"batch.size={size}", f"{allowed} or less", RAISE)


@rule(
    "size.fetch",
    "consumers (`kafka.client`) fetch the largest record of the topics",
    why="a smaller limit reads one record at a time, or none",
    severity=Severity.WARNING,
)
def fetch(target: Target) -> Iterator[Finding]:
    largest = target.environment.connector.max_record_bytes + FRAMING_BYTES
    client = {"receive.message.max.bytes": str(RECEIVE_MESSAGE_MAX_BYTES), **target.environment.kafka.client}
    for key in FETCH_KEYS:
        if number(client.get(key), largest) < largest:
            yield Finding(f"{key}={client[key]}", f"{largest} or more", f"set kafka.client.{key} to {largest} or more")


@rule(
    "time.delivery",
    "the producer's `delivery.timeout.ms` is not below `linger.ms` + `request.timeout.ms`",
    why="Kafka's producer refuses to start with less",
)
def delivery(target: Target) -> Iterator[Finding]:
    given = _producer(target, "delivery.timeout.ms", DELIVERY_TIMEOUT_MS)
    least = _producer(target, "linger.ms", 0) + _producer(target, "request.timeout.ms", REQUEST_TIMEOUT_MS)
    if given < least:
        remedy = "set connector.delivery_timeout_ms of the environment file higher, or request.timeout.ms lower"
        yield Finding(f"delivery.timeout.ms={given}", f"{least} or more", remedy)


@rule(
    "size.config",
    f"the connector config takes less than {CONFIG_FAIL_BYTES // 1024} KiB; a warning from {CONFIG_WARN_BYTES // 1024}",
    why="Connect stores it as one record of its config topic, and 1 MiB is the most that fits",
)
def config(target: Target) -> Iterator[Finding]:
    size = len(json.dumps({"properties": dict(target.config)}, ensure_ascii=False, separators=(",", ":")).encode())
    if size < CONFIG_WARN_BYTES:
        return
    remedy = "split the pipeline into two, or keep fewer versions of the largest schemas"
    grave = Severity.ERROR if size >= CONFIG_FAIL_BYTES else Severity.WARNING
    yield Finding(f"{size // 1024} KiB", f"less than {CONFIG_WARN_BYTES // 1024} KiB", remedy, grave)


@rule(
    "schema.docs",
    "schema texts in the config have no `doc`",
    why="they are not data, and the config is one record of limited size",
    severity=Severity.WARNING,
)
def docs(target: Target) -> Iterator[Finding]:
    for key, text in schema_texts(target.config):
        if len(without_docs(text)) < len(json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False)):
            yield Finding(f"{key} has doc", "no doc", "render schemas by `version.text`, as our templates do")


@rule(
    "placeholders",
    "`${` stands only in placeholders `${provider:key}` and `${provider:path:key}`, and never in a schema",
    why="Connect would replace a part of the schema; what it cannot read it passes on as it is, without an error",
)
def placeholders(target: Target) -> Iterator[Finding]:
    schemas = dict(schema_texts(target.config))
    for key, value in target.config.items():
        if "${" not in value or key.endswith((".route.topic.replacement", ".replacement")):
            continue
        if key in schemas:
            yield Finding(f"{key} has ${{", "escaped as \\u0024{", "render schemas by `version.text`")
        elif "${" in PLACEHOLDER.sub("", value):
            expected = "${provider:key} or ${provider:path:key}"
            yield Finding(f"{key} has ${{ of another form", expected, "correct the placeholder")


RULES = (router, topic, buffer, batch, fetch, delivery, config, docs, placeholders)
