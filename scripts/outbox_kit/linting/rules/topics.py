"""Settings of the topics themselves: what defeats compaction, what a broker refuses, how many copies there are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from outbox_kit.connector_config import number
from outbox_kit.kafka.state import DAY_MS, Topic
from outbox_kit.linting.lint_input import Target
from outbox_kit.linting.rule import Finding, Rule, rule, rule_across
from outbox_kit.rules import Severity

LONGEST_SEGMENT_MS = 30 * DAY_MS
MOST_DIRTY = 0.9
LEAST_COPIES = 3


def _decimal(text: str | None, default: float) -> float:
    try:
        return float(text) if text is not None else default
    except ValueError:
        return default


@dataclass(frozen=True)
class Compaction:
    """One setting of a compacted topic: whether its value is good, in words, and why."""

    key: str
    good: Callable[[str], bool]
    expected: str
    why: str

    @property
    def rule(self) -> Rule:
        """`lint.compaction.KEY`."""
        demands = f"`{self.key}` of a compacted topic is {self.expected}, or left to the broker"
        return rule(f"compaction.{self.key}", demands, why=self.why, severity=Severity.WARNING)(self.look)

    def look(self, target: Target) -> Iterator[Finding]:
        for topic in _compacted(target):
            value = topic.config.get(self.key)
            if value is not None and not self.good(value):
                seen = f"topic {topic.name}: {self.key}={value}"
                yield Finding(seen, self.expected, f"correct {self.key} under `topic:` of the aggregate")


COMPACTION = (
    Compaction(
        "delete.retention.ms",
        lambda value: number(value, DAY_MS) >= DAY_MS,
        f"{DAY_MS} (a day) or more",
        "a consumer that is away for longer never sees the tombstone, and keeps what was deleted",
    ),
    Compaction(
        "min.cleanable.dirty.ratio",
        lambda value: _decimal(value, 0.5) <= MOST_DIRTY,
        f"{MOST_DIRTY} or less",
        "the cleaner would hardly ever run: topic and restarts grow",
    ),
    Compaction(
        "segment.ms",
        lambda value: number(value, DAY_MS) <= LONGEST_SEGMENT_MS,
        f"{LONGEST_SEGMENT_MS} (30 days) or less",
        "the segment that is being written is never compacted",
    ),
    Compaction(
        "message.timestamp.type",
        lambda value: value == "CreateTime",
        "CreateTime",
        "the record's timestamp is the commit time, and would be replaced by the broker's",
    ),
)


def _compacted(target: Target) -> list[Topic]:
    return [topic for topic in target.topics.values() if "compact" in topic.config.get("cleanup.policy", "")]


@rule(
    "compaction.lag",
    "`min.compaction.lag.ms` is not above `max.compaction.lag.ms`",
    why="the broker refuses such a topic (LogConfig.validateValues)",
)
def lag(target: Target) -> Iterator[Finding]:
    for topic in _compacted(target):
        least = number(topic.config.get("min.compaction.lag.ms"), 0)
        most = number(topic.config.get("max.compaction.lag.ms"), least)
        if least > most:
            seen = f"topic {topic.name}: min.compaction.lag.ms={least}, max.compaction.lag.ms={most}"
            yield Finding(seen, f"{most} or less", "lower min.compaction.lag.ms under `topic:` of the aggregate")


@rule(
    "replication.writable",
    "`min.insync.replicas` is not above the replication factor",
    why="no record would ever be acknowledged",
)
def writable(target: Target) -> Iterator[Finding]:
    copies = target.environment.kafka.replication_factor
    for topic in target.topics.values():
        least = number(topic.config.get("min.insync.replicas"), 1)
        if least > copies:
            seen = f"topic {topic.name}: min.insync.replicas={least}, {copies} replicas"
            yield Finding(seen, f"{copies} or less", "correct kafka.min_insync_replicas of the environment file")


@rule(
    "replication.copies",
    f"topics have {LEAST_COPIES} replicas, and stay writable without one (not asked of a Kafka on this machine)",
    why="with fewer the loss of one broker stops the connector, or loses what was acknowledged",
    severity=Severity.WARNING,
)
def copies(target: Target) -> Iterator[Finding]:
    kafka = target.environment.kafka
    if target.embedded or kafka.min_insync_replicas > kafka.replication_factor:
        return
    if kafka.replication_factor < LEAST_COPIES:
        seen = f"kafka.replication_factor is {kafka.replication_factor}"
        yield Finding(seen, f"{LEAST_COPIES} or more", "raise it in the environment file")
    elif kafka.min_insync_replicas == kafka.replication_factor:
        seen = f"kafka.min_insync_replicas is {kafka.min_insync_replicas}, as many as there are replicas"
        yield Finding(seen, f"{kafka.replication_factor - 1} or less", "lower it in the environment file")


@rule_across(
    "topic.collision",
    "no two topics differ only in `.` and `_`",
    why="their metrics have one name, and the broker refuses to make the second",
)
def collision(targets: Sequence[Target]) -> Iterator[Finding]:
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for target in targets:
        for name in target.topics:
            found[target.environment.kafka.bootstrap_servers, name.replace(".", "_")].add(name)
    for names in found.values():
        if len(names) > 1:
            yield Finding(" and ".join(sorted(names)), "names that differ otherwise", "rename an aggregate or a prefix")


RULES = (*(entry.rule for entry in COMPACTION), lag, writable, copies, collision)
