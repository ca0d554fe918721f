"""Define rules for the sizes of records and configs. `connector.max_record_bytes` determines most limits."""

from __future__ import annotations

import json
from collections.abc import Iterator

from outbox_kit.connect.connector_config import MAX_MESSAGE_BYTES, parse_int, producer_setting
from outbox_kit.kafka.state import FRAMING_BYTES
from outbox_kit.linting.lint_rule import LintInput, LintRules, violation
from outbox_kit.results.checks import Finding, Severity

# Default of receive.message.max.bytes in librdkafka.
DEFAULT_RECEIVE_BYTES = 100_000_000
FETCH_KEYS = ("receive.message.max.bytes", "fetch.max.bytes", "max.partition.fetch.bytes", "fetch.message.max.bytes")
# A connector config is one record of Connect's config topic, whose producer and topic accept up to 1 MiB by default.
CONFIG_WARN_BYTES = 512 * 1024
CONFIG_FAIL_BYTES = 900 * 1024
DERIVE_SIZE_HINT = "remove overrides of this size, and derive it from connector.max_record_bytes as in outbox-postgres"
RULES = LintRules()


@RULES.rule(
    "size.router",
    "`max.record.bytes` of the router, including framing, does not exceed the producer's `max.request.size`",
    reason="a larger record fails in the producer and stops the task, instead of becoming a dead letter",
)
def check_router_limit(lint_input: LintInput) -> Iterator[Finding]:
    request_size = producer_setting(lint_input.config, "max.request.size")
    for router in lint_input.routers:
        size = parse_int(router.settings.get("max.record.bytes"), lint_input.environment.connector.max_record_bytes)
        if size + FRAMING_BYTES > request_size:
            actual = f"max.record.bytes={size}, max.request.size={request_size}"
            yield violation(actual, f"max.request.size of {size + FRAMING_BYTES} or more", DERIVE_SIZE_HINT)


@RULES.rule(
    "size.topic",
    "the producer's `max.request.size` does not exceed `max.message.bytes` of any topic",
    reason="the broker rejects a larger record, and with exactly-once support the task fails after every restart",
)
def check_topic_limit(lint_input: LintInput) -> Iterator[Finding]:
    request_size = producer_setting(lint_input.config, "max.request.size")
    for topic in lint_input.topics.values() if lint_input.config else ():
        message_size = parse_int(topic.config.get("max.message.bytes"), MAX_MESSAGE_BYTES)
        if request_size > message_size:
            actual = f"max.request.size={request_size}, max.message.bytes={message_size} of topic {topic.name}"
            yield violation(actual, f"max.message.bytes of {request_size} or more", DERIVE_SIZE_HINT)


@RULES.rule(
    "size.buffer",
    "the producer's `buffer.memory` can hold the largest record and a full batch",
    reason="if a record does not fit into the buffer, the producer waits for `max.block.ms` and then fails",
)
def check_buffer_memory(lint_input: LintInput) -> Iterator[Finding]:
    buffer_size, request_size, batch_size = (
        producer_setting(lint_input.config, key) for key in ("buffer.memory", "max.request.size", "batch.size")
    )
    if lint_input.config and buffer_size < request_size + batch_size:
        yield violation(f"buffer.memory={buffer_size}", f"{request_size + batch_size} or more", DERIVE_SIZE_HINT)


@RULES.rule(
    "size.batch",
    "the producer's `batch.size` does not exceed its `max.request.size`",
    reason="a full batch would exceed the limit of the topic, and the producer would split it and send it again",
    severity=Severity.WARNING,
)
def check_batch_size(lint_input: LintInput) -> Iterator[Finding]:
    batch_size, request_size = (producer_setting(lint_input.config, key) for key in ("batch.size", "max.request.size"))
    if lint_input.config and batch_size > request_size:
        yield violation(f"batch.size={batch_size}", f"{request_size} or less", DERIVE_SIZE_HINT)


@RULES.rule(
    "size.fetch",
    "the fetch limits of consumers (`kafka.client`) are not smaller than the largest record of the topics",
    reason="with a smaller limit, a fetch returns one record at a time, or no record",
    severity=Severity.WARNING,
)
def check_consumer_limits(lint_input: LintInput) -> Iterator[Finding]:
    largest_record = lint_input.environment.connector.max_record_bytes + FRAMING_BYTES
    client_settings = {"receive.message.max.bytes": str(DEFAULT_RECEIVE_BYTES), **lint_input.environment.kafka.client}
    for key in FETCH_KEYS:
        if parse_int(client_settings.get(key), largest_record) < largest_record:
            remedy = f"set kafka.client.{key} to {largest_record} or more"
            yield violation(f"{key}={client_settings[key]}", f"{largest_record} or more", remedy)


@RULES.rule(
    "size.config",
    f"the connector config is below {CONFIG_FAIL_BYTES // 1024} KiB (warning from {CONFIG_WARN_BYTES // 1024} KiB)",
    reason="Connect stores a connector config as one record in its config topic, and a record is limited to 1 MiB",
)
def check_config_size(lint_input: LintInput) -> Iterator[Finding]:
    record = {"properties": dict(lint_input.config)}
    size = len(json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode())
    if size >= CONFIG_WARN_BYTES:
        remedy = "split the pipeline into two, or list fewer `aggregate.versions` in a copy of the template"
        severity = Severity.ERROR if size >= CONFIG_FAIL_BYTES else Severity.WARNING
        yield violation(f"{size // 1024} KiB", f"less than {CONFIG_WARN_BYTES // 1024} KiB", remedy, severity)
