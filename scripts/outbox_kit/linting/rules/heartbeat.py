"""Define rules for heartbeats. Without heartbeats, the slot retains WAL while transactions write only other tables."""

from __future__ import annotations

import re
from collections.abc import Iterator

from outbox_kit.connect.connector_config import MESSAGE_PREFIXES, parse_int, split_list
from outbox_kit.linting.lint_rule import UNSET, LintInput, LintRules, violation
from outbox_kit.results.checks import Finding

INTERVAL_KEY = "heartbeat.interval.ms"
QUERY_KEY = "heartbeat.action.query"
EXCLUDE_KEY = "message.prefix.exclude.list"
MESSAGE_CALL_PATTERN = re.compile(r"pg_logical_emit_message\s*\(\s*(true|false)\s*,\s*'([^']*)'", re.IGNORECASE)
EXPECTED_QUERY = "select pg_logical_emit_message(false, 'outbox-heartbeat', '')"
RULES = LintRules()


@RULES.rule(
    "heartbeat.interval",
    f"`{INTERVAL_KEY}` is greater than 0",
    reason="without heartbeats, the slot does not advance while only other tables are written, and WAL fills the disk",
)
def check_interval(lint_input: LintInput) -> Iterator[Finding]:
    if lint_input.config and parse_int(lint_input.config.get(INTERVAL_KEY)) <= 0:
        actual = f"{INTERVAL_KEY}={lint_input.config.get(INTERVAL_KEY, UNSET)}"
        yield violation(actual, "greater than 0", "set it to `settings.heartbeat_interval_ms` in the template")


@RULES.rule(
    "heartbeat.query",
    f"`{QUERY_KEY}` writes a logical decoding message that is not transactional",
    reason="the slot advances only to the LSN of an event that the connector receives, and the connector receives "
    "logical decoding messages even if the publication does not contain a table",
)
def check_query(lint_input: LintInput) -> Iterator[Finding]:
    if not lint_input.config:
        return
    query = lint_input.config.get(QUERY_KEY, "")
    message_call = MESSAGE_CALL_PATTERN.search(query)
    if not query:
        problem = "is not set"
    elif message_call is None:
        problem = "does not call pg_logical_emit_message(false, 'PREFIX', ...)"
    elif message_call[1].lower() == "true":
        problem = "emits a transactional message"
    else:
        return
    yield violation(f"{QUERY_KEY} {problem}", EXPECTED_QUERY, f"set {QUERY_KEY} to {EXPECTED_QUERY}")


@RULES.rule(
    "heartbeat.prefix",
    "the connector does not capture the logical decoding messages of its heartbeat",
    reason="otherwise the transform rejects the heartbeat message's record, and the task stops",
)
def check_prefix(lint_input: LintInput) -> Iterator[Finding]:
    message_call = MESSAGE_CALL_PATTERN.search(lint_input.config.get(QUERY_KEY, ""))
    if message_call is None:
        return
    included = lint_input.config.get(MESSAGE_PREFIXES)
    excluded = lint_input.config.get(EXCLUDE_KEY)
    if included is not None and excluded is not None:
        yield violation(f"{MESSAGE_PREFIXES} and {EXCLUDE_KEY} are both set", MESSAGE_PREFIXES, f"remove {EXCLUDE_KEY}")
    elif included is not None and _matches(included, message_call[2]):
        actual = f"{MESSAGE_PREFIXES}={included} includes {message_call[2]!r}"
        yield violation(actual, "only the prefix of events", f"set {MESSAGE_PREFIXES} to source.message_prefix")
    elif included is None and not _matches(excluded or "", message_call[2]):
        expected = f"{EXCLUDE_KEY}={message_call[2]}"
        yield violation(f"{EXCLUDE_KEY} omits {message_call[2]!r}", expected, f"set {EXCLUDE_KEY} to {message_call[2]}")


@RULES.rule(
    "heartbeat.topic",
    "`apply` creates the heartbeat topic, and the topic is not compacted",
    reason="Connect's producer does not create topics, so a missing topic blocks heartbeats and all later records",
)
def check_topic(lint_input: LintInput) -> Iterator[Finding]:
    if not lint_input.config:
        return
    topic_prefix = lint_input.config.get("topic.heartbeat.prefix", "__debezium-heartbeat")
    name = f"{topic_prefix}.{lint_input.pipeline.prefix}"
    declared_topic = lint_input.topics.get(name)
    if declared_topic is None:
        remedy = "remove topic.heartbeat.prefix"
        yield violation(f"`apply` does not create topic {name}", lint_input.pipeline.heartbeat_topic, remedy)
    elif "compact" in declared_topic.config["cleanup.policy"]:
        yield violation(f"{name} is compacted", "cleanup.policy=delete", "remove topic.heartbeat.prefix")


def _matches(patterns: str, message_prefix: str) -> bool:
    """Return whether a pattern of the list matches the entire message prefix, ignoring case as Debezium does."""
    return any(_full_match(pattern, message_prefix) for pattern in split_list(patterns))


def _full_match(pattern: str, message_prefix: str) -> bool:
    try:
        return re.fullmatch(pattern, message_prefix, re.IGNORECASE) is not None
    except re.error:  # the pattern is not valid in Python, but might be valid in Java
        return pattern == message_prefix
