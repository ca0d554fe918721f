"""Define rules for topic settings: compaction, replication and colliding names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from outbox_kit.connect.connector_config import parse_int
from outbox_kit.kafka.state import DAY_MS, Topic
from outbox_kit.linting.lint_rule import LintInput, LintRules, violation
from outbox_kit.results.checks import Finding, Severity

MAX_SEGMENT_MS = 30 * DAY_MS
MAX_DIRTY_RATIO = 0.9
MIN_REPLICAS = 3
RULES = LintRules()


def _parse_float(text: str, default: float) -> float:
    try:
        return float(text)
    except ValueError:
        return default


def _compacted_topics(lint_input: LintInput) -> list[Topic]:
    return [topic for topic in lint_input.topics.values() if "compact" in topic.config.get("cleanup.policy", "")]


def _add_compaction_rule(key: str, is_allowed: Callable[[str], bool], expected: str, reason: str) -> None:
    """Add the rule `lint.compaction.KEY`, with severity `warning`, for a setting of compacted topics."""
    condition = f"`{key}` of a compacted topic is {expected}, or is not set"

    @RULES.rule(f"compaction.{key}", condition, reason=reason, severity=Severity.WARNING)
    def check(lint_input: LintInput) -> Iterator[Finding]:
        for topic in _compacted_topics(lint_input):
            value = topic.config.get(key)
            if value is not None and not is_allowed(value):
                remedy = f"set {key} under `topic` of the aggregate type to {expected}"
                yield violation(f"topic {topic.name}: {key}={value}", expected, remedy)


_add_compaction_rule(
    "delete.retention.ms",
    lambda value: parse_int(value, DAY_MS) >= DAY_MS,
    f"{DAY_MS} (a day) or more",
    "a consumer that is stopped for longer than this misses tombstones, and its table retains deleted rows",
)
_add_compaction_rule(
    "min.cleanable.dirty.ratio",
    lambda value: _parse_float(value, 0.5) <= MAX_DIRTY_RATIO,
    f"{MAX_DIRTY_RATIO} or less",
    "with a higher ratio, the log cleaner runs rarely, so the topic and the time to read it grow",
)
_add_compaction_rule(
    "segment.ms",
    lambda value: parse_int(value, DAY_MS) <= MAX_SEGMENT_MS,
    f"{MAX_SEGMENT_MS} (30 days) or less",
    "the log cleaner never compacts the active segment",
)
_add_compaction_rule(
    "message.timestamp.type",
    lambda value: value == "CreateTime",
    "CreateTime",
    "with LogAppendTime, the broker would replace the timestamp of a record, which is the commit time",
)


@RULES.rule(
    "compaction.lag",
    "`min.compaction.lag.ms` does not exceed `max.compaction.lag.ms`",
    reason="otherwise the broker rejects the topic (LogConfig.validateValues)",
)
def check_compaction_lag(lint_input: LintInput) -> Iterator[Finding]:
    for topic in _compacted_topics(lint_input):
        minimum = parse_int(topic.config.get("min.compaction.lag.ms"))
        maximum = parse_int(topic.config.get("max.compaction.lag.ms"), minimum)
        if minimum > maximum:
            actual = f"topic {topic.name}: min.compaction.lag.ms={minimum}, max.compaction.lag.ms={maximum}"
            yield violation(actual, f"{maximum} or less", "reduce min.compaction.lag.ms under `topic` in `aggregates`")


@RULES.rule(
    "replication.writable",
    "`min.insync.replicas` does not exceed the replication factor",
    reason="the brokers would reject every record",
)
def check_writable(lint_input: LintInput) -> Iterator[Finding]:
    replication_factor = lint_input.environment.kafka.replication_factor
    for topic in lint_input.topics.values():
        minimum = parse_int(topic.config.get("min.insync.replicas"), 1)
        if minimum > replication_factor:
            actual = f"topic {topic.name}: min.insync.replicas={minimum}, {replication_factor} replicas"
            yield violation(actual, f"{replication_factor} or less", "correct kafka.min_insync_replicas")


@RULES.rule(
    "replication.copies",
    f"topics have {MIN_REPLICAS} replicas and accept writes while one replica is down (not checked for local Kafka)",
    reason="otherwise the failure of one broker stops the connector, or acknowledged records are lost",
    severity=Severity.WARNING,
)
def check_replicas(lint_input: LintInput) -> Iterator[Finding]:
    kafka = lint_input.environment.kafka
    if lint_input.is_local or kafka.min_insync_replicas > kafka.replication_factor:
        return
    if kafka.replication_factor < MIN_REPLICAS:
        actual = f"kafka.replication_factor is {kafka.replication_factor}"
        yield violation(actual, f"{MIN_REPLICAS} or more", "raise kafka.replication_factor")
    elif kafka.min_insync_replicas == kafka.replication_factor:
        actual = f"kafka.min_insync_replicas is {kafka.min_insync_replicas}, equal to the number of replicas"
        yield violation(actual, f"{kafka.replication_factor - 1} or less", "lower kafka.min_insync_replicas")


@RULES.cross_input_rule(
    "topic.collision",
    "topic names remain unique if each `.` is replaced with `_`",
    reason="otherwise the metric names of two topics collide, and the broker rejects the second topic",
)
def check_collision(inputs: Sequence[LintInput]) -> Iterator[Finding]:
    names_by_metric: dict[tuple[str, str], set[str]] = defaultdict(set)
    for lint_input in inputs:
        for name in lint_input.topics:
            names_by_metric[lint_input.environment.kafka.bootstrap_servers, name.replace(".", "_")].add(name)
    for colliding_names in names_by_metric.values():
        if len(colliding_names) > 1:
            remedy = "rename an aggregate type, or change `prefix` of a pipeline"
            yield violation(" and ".join(sorted(colliding_names)), "names that differ in more than `.` and `_`", remedy)
