"""Heartbeats: without them a quiet outbox beside busy tables keeps the server's log for ever."""

from __future__ import annotations

import re
from collections.abc import Iterator

from outbox_kit.connector_config import MESSAGES, items, number
from outbox_kit.linting.lint_input import Target
from outbox_kit.linting.rule import Finding, rule

INTERVAL = "heartbeat.interval.ms"
QUERY = "heartbeat.action.query"
EXCLUDED = "message.prefix.exclude.list"
MESSAGE = re.compile(r"pg_logical_emit_message\s*\(\s*(true|false)\s*,\s*'([^']*)'", re.IGNORECASE)
OURS = "select pg_logical_emit_message(false, 'outbox-heartbeat', '')"


@rule(
    "heartbeat.interval",
    f"`{INTERVAL}` is above 0",
    why="Debezium's default is none: the slot stands still while other tables write, and the disk fills",
)
def interval(target: Target) -> Iterator[Finding]:
    if target.config and number(target.config.get(INTERVAL), 0) <= 0:
        seen = f"{INTERVAL}={target.config.get(INTERVAL, '(not set)')}"
        yield Finding(seen, "above 0", "set it from connector.heartbeat_interval_ms of the environment file")


@rule(
    "heartbeat.query",
    f"`{QUERY}` writes a logical message that is not transactional",
    why="without a write of its own the heartbeat has nothing new to acknowledge; a table would need publishing",
)
def query(target: Target) -> Iterator[Finding]:
    if not target.config:
        return
    text = target.config.get(QUERY, "")
    found = MESSAGE.search(text)
    if not text:
        yield Finding(f"{QUERY} is not set", OURS, f"set it to: {OURS}")
    elif found is None:
        yield Finding(f"{QUERY} calls no pg_logical_emit_message", OURS, f"set it to: {OURS}")
    elif found[1].lower() == "true":
        yield Finding(f"{QUERY} emits a transactional message", OURS, f"set it to: {OURS}")


@rule(
    "heartbeat.prefix",
    "messages of the heartbeat are kept out by their prefix",
    why="they would become records, which the transform refuses: the task stops",
)
def prefix(target: Target) -> Iterator[Finding]:
    found = MESSAGE.search(target.config.get(QUERY, ""))
    if found is None:
        return
    name = found[2]
    included = target.config.get(MESSAGES)
    excluded = target.config.get(EXCLUDED)
    if included is not None and excluded is not None:
        yield Finding(f"{MESSAGES} and {EXCLUDED} are both set", "one of them", f"leave {EXCLUDED} out")
    elif included is not None and _matches(included, name):
        yield Finding(f"{MESSAGES}={included} lets {name!r} in", "the outbox's own prefix only", f"correct {MESSAGES}")
    elif included is None and not _matches(excluded or "", name):
        yield Finding(f"{EXCLUDED} does not have {name!r}", f"{EXCLUDED}={name}", f"set {EXCLUDED} to {name}")


@rule(
    "heartbeat.topic",
    "the topic of heartbeats is one that `apply` makes, and is not compacted",
    why="Connect's producer creates none: a missing topic stops everything behind the first heartbeat",
)
def topic(target: Target) -> Iterator[Finding]:
    if not target.config:
        return
    first = target.config.get("topic.heartbeat.prefix", "__debezium-heartbeat")
    name = f"{first}.{target.pipeline.prefix}"
    declared = target.topics.get(name)
    if declared is None:
        remedy = "leave topic.heartbeat.prefix out"
        yield Finding(f"{name} is not declared", target.pipeline.heartbeat_topic, remedy)
    elif "compact" in declared.config["cleanup.policy"]:
        yield Finding(f"{name} is compacted", "cleanup.policy=delete", "give heartbeats a topic of their own")


def _matches(patterns: str, name: str) -> bool:
    """Debezium matches regular expressions against the whole prefix."""
    return any(_full(pattern, name) for pattern in items(patterns))


def _full(pattern: str, name: str) -> bool:
    try:
        return re.fullmatch(pattern, name, re.IGNORECASE) is not None
    except re.error:  # Java's expressions are not quite Python's
        return pattern == name


RULES = (interval, query, prefix, topic)
