"""Rules for heartbeats. Without heartbeats the slot retains WAL while only tables other than the outbox are written."""

from __future__ import annotations

import re
from collections.abc import Iterator

from outbox_kit.connector_config import MESSAGE_PREFIXES, parse_int, split_list
from outbox_kit.linting.lint_input import LintInput
from outbox_kit.linting.lint_rule import UNSET, LintRules, violation
from outbox_kit.rules import Finding

INTERVAL = "heartbeat.interval.ms"
QUERY = "heartbeat.action.query"
EXCLUDES = "message.prefix.exclude.list"
MESSAGE_CALL = re.compile(r"pg_logical_emit_message\s*\(\s*(true|false)\s*,\s*'([^']*)'", re.IGNORECASE)
EXPECTED_QUERY = "select pg_logical_emit_message(false, 'outbox-heartbeat', '')"
RULES = LintRules()


@RULES.rule(
    "heartbeat.interval",
    f"`{INTERVAL}` is above 0",
    reason="without heartbeats, while only other tables are written, the slot does not advance and WAL fills the disk",
)
def interval(lint_input: LintInput) -> Iterator[Finding]:
    if lint_input.config and parse_int(lint_input.config.get(INTERVAL)) <= 0:
        actual = f"{INTERVAL}={lint_input.config.get(INTERVAL, UNSET)}"
        yield violation(actual, "above 0", f"set {INTERVAL} from connector.heartbeat_interval_ms")


@RULES.rule(
    "heartbeat.query",
    f"`{QUERY}` writes a logical message that is not transactional",
    reason="the slot advances only to the LSN of an event that the connector receives; a logical message needs no "
    "table in the publication",
)
def query(lint_input: LintInput) -> Iterator[Finding]:
    if not lint_input.config:
        return
    text = lint_input.config.get(QUERY, "")
    message = MESSAGE_CALL.search(text)
    if not text:
        problem = "is not set"
    elif message is None:
        problem = "does not call pg_logical_emit_message"
    elif message[1].lower() == "true":
        problem = "emits a transactional message"
    else:
        return
    yield violation(f"{QUERY} {problem}", EXPECTED_QUERY, f"set it to: {EXPECTED_QUERY}")


@RULES.rule(
    "heartbeat.prefix",
    "the connector does not capture the logical messages of its heartbeat",
    reason="the transform rejects the record of a heartbeat message, and the task stops",
)
def prefix(lint_input: LintInput) -> Iterator[Finding]:
    message = MESSAGE_CALL.search(lint_input.config.get(QUERY, ""))
    if message is None:
        return
    included = lint_input.config.get(MESSAGE_PREFIXES)
    excluded = lint_input.config.get(EXCLUDES)
    if included is not None and excluded is not None:
        yield violation(f"{MESSAGE_PREFIXES} and {EXCLUDES} are both set", MESSAGE_PREFIXES, f"leave {EXCLUDES} out")
    elif included is not None and _matches(included, message[2]):
        actual = f"{MESSAGE_PREFIXES}={included} includes {message[2]!r}"
        yield violation(actual, "the prefix of the outbox only", f"correct {MESSAGE_PREFIXES}")
    elif included is None and not _matches(excluded or "", message[2]):
        expected = f"{EXCLUDES}={message[2]}"
        yield violation(f"{EXCLUDES} does not include {message[2]!r}", expected, f"set {EXCLUDES} to {message[2]}")


@RULES.rule(
    "heartbeat.topic",
    "`apply` creates the heartbeat topic, and the topic is not compacted",
    reason="Connect's producer does not create topics: a missing topic blocks heartbeats and all later records",
)
def topic(lint_input: LintInput) -> Iterator[Finding]:
    if not lint_input.config:
        return
    topic_prefix = lint_input.config.get("topic.heartbeat.prefix", "__debezium-heartbeat")
    name = f"{topic_prefix}.{lint_input.pipeline.prefix}"
    declared_topic = lint_input.topics.get(name)
    if declared_topic is None:
        remedy = "leave topic.heartbeat.prefix out"
        yield violation(f"{name} is not declared", lint_input.pipeline.heartbeat_topic, remedy)
    elif "compact" in declared_topic.config["cleanup.policy"]:
        yield violation(f"{name} is compacted", "cleanup.policy=delete", "use a separate topic for heartbeats")


def _matches(patterns: str, message_prefix: str) -> bool:
    """Return whether one of the patterns matches the entire message prefix, as in Debezium."""
    return any(_full_match(pattern, message_prefix) for pattern in split_list(patterns))


def _full_match(pattern: str, message_prefix: str) -> bool:
    try:
        return re.fullmatch(pattern, message_prefix, re.IGNORECASE) is not None
    except re.error:  # the pattern is valid in Java only
        return pattern == message_prefix
