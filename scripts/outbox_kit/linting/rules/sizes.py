"""Rules for sizes of records and of the config. Most limits are derived from `connector.max_record_bytes`."""

from __future__ import annotations

import json
from collections.abc import Iterator

from outbox_kit.connector_config import MAX_MESSAGE_BYTES, parse_int, producer_setting
from outbox_kit.kafka.state import FRAMING_BYTES
from outbox_kit.linting.lint_input import LintInput
from outbox_kit.linting.lint_rule import LintRules, violation
from outbox_kit.rules import Finding, Severity

# Default of receive.message.max.bytes in librdkafka.
RECEIVE_MAX_BYTES = 100_000_000
FETCH_KEYS = ("receive.message.max.bytes", "fetch.max.bytes", "max.partition.fetch.bytes", "fetch.message.max.bytes")
# A connector config is one record of Connect's config topic, whose producer and topic allow 1 MiB.
CONFIG_WARN_BYTES = 512 * 1024
CONFIG_FAIL_BYTES = 900 * 1024
DERIVED_HINT = "remove the override: the template derives it from connector.max_record_bytes of the environment file"
RULES = LintRules()


@RULES.rule(
    "size.router",
    "`max.record.bytes` of the router, with framing, fits into the producer's `max.request.size`",
    reason="a larger record fails in the producer and stops the task, instead of becoming a dead letter",
)
def router_limit(lint_input: LintInput) -> Iterator[Finding]:
    request_size = producer_setting(lint_input.config, "max.request.size")
    for router in lint_input.routers:
        limit = parse_int(router.settings.get("max.record.bytes"), lint_input.environment.connector.max_record_bytes)
        if limit + FRAMING_BYTES > request_size:
            actual = f"max.record.bytes={limit}, max.request.size={request_size}"
            yield violation(actual, f"max.request.size of {limit + FRAMING_BYTES} or more", DERIVED_HINT)


@RULES.rule(
    "size.topic",
    "the producer's `max.request.size` is not above `max.message.bytes` of any topic",
    reason="the broker rejects a larger record; with exactly-once support the task fails again after every restart",
)
def topic_limit(lint_input: LintInput) -> Iterator[Finding]:
    request_size = producer_setting(lint_input.config, "max.request.size")
    for topic in lint_input.topics.values() if lint_input.config else ():
        limit = parse_int(topic.config.get("max.message.bytes"), MAX_MESSAGE_BYTES)
        if request_size > limit:
            actual = f"max.request.size={request_size}, max.message.bytes={limit} of topic {topic.name}"
            yield violation(actual, f"max.message.bytes of {request_size} or more", DERIVED_HINT)


@RULES.rule(
    "size.buffer",
    "the producer's `buffer.memory` holds the largest record and a full batch",
    reason="a record that does not fit into the buffer waits for max.block.ms and fails",
)
def buffer_memory(lint_input: LintInput) -> Iterator[Finding]:
    memory, request_size, batch = (
        producer_setting(lint_input.config, key) for key in ("buffer.memory", "max.request.size", "batch.size")
    )
    if lint_input.config and memory < request_size + batch:
        yield violation(f"buffer.memory={memory}", f"{request_size + batch} or more", DERIVED_HINT)


@RULES.rule(
    "size.batch",
    "the producer's `batch.size` is not above its `max.request.size`",
    reason="a full batch would exceed the limit of the topic, and the producer would split it and send it again",
    severity=Severity.WARNING,
)
def batch_size(lint_input: LintInput) -> Iterator[Finding]:
    batch, request_size = (producer_setting(lint_input.config, key) for key in ("batch.size", "max.request.size"))
    if lint_input.config and batch > request_size:
        yield violation(f"batch.size={batch}", f"{request_size} or less", DERIVED_HINT)


@RULES.rule(
    "size.fetch",
    "consumers (`kafka.client`) fetch the largest record of the topics",
    reason="with a smaller limit a fetch returns one record at a time, or no record",
    severity=Severity.WARNING,
)
def consumer_limits(lint_input: LintInput) -> Iterator[Finding]:
    largest = lint_input.environment.connector.max_record_bytes + FRAMING_BYTES
    client_settings = {"receive.message.max.bytes": str(RECEIVE_MAX_BYTES), **lint_input.environment.kafka.client}
    for key in FETCH_KEYS:
        if parse_int(client_settings.get(key), largest) < largest:
            remedy = f"set kafka.client.{key} to {largest} or more"
            yield violation(f"{key}={client_settings[key]}", f"{largest} or more", remedy)


@RULES.rule(
    "size.config",
    f"the connector config is below {CONFIG_FAIL_BYTES // 1024} KiB (warning from {CONFIG_WARN_BYTES // 1024} KiB)",
    reason="Connect stores a connector config as one record of its config topic, whose limit is 1 MiB",
)
def config_size(lint_input: LintInput) -> Iterator[Finding]:
    record = {"properties": dict(lint_input.config)}
    size = len(json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode())
    if size >= CONFIG_WARN_BYTES:
        remedy = "split the pipeline into two, or retain fewer versions of the largest schemas"
        severity = Severity.ERROR if size >= CONFIG_FAIL_BYTES else Severity.WARNING
        yield violation(f"{size // 1024} KiB", f"less than {CONFIG_WARN_BYTES // 1024} KiB", remedy, severity)
