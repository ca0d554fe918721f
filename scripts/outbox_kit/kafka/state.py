"""Desired and actual state of the topics, and the changes between them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from outbox_kit.changes import Change
from outbox_kit.errors import RefusedError
from outbox_kit.kafka.client import TopicState
from outbox_kit.pipeline import Environment, Pipeline

DAY_MS = 24 * 60 * 60 * 1000
# Allowance for the framing of a record; the router counts key, value and headers.
FRAMING_BYTES = 65_536
# A record's timestamp is its commit time. By default a broker rejects timestamps over an hour ahead of its clock, and
# with exactly-once the task then fails at each commit: clock skew must not stop the pipeline.
ANY_TIMESTAMP = str(2**63 - 1)

# Purpose of each setting, shown with its change and in docs/plan.md.
SETTINGS = {
    "cleanup.policy": "which records are deleted: all but the latest of each key, or those older than the retention",
    "retention.ms": "how long records are retained",
    "delete.retention.ms": "how long tombstones are retained: a reader that is down for less misses no deletion",
    "min.compaction.lag.ms": "how long a record stays readable after a newer one has replaced it",
    "min.cleanable.dirty.ratio": "share of replaced records that starts a compaction: limits the cost of a first read",
    "segment.ms": "when a segment of a topic with little traffic is closed: only closed segments are compacted",
    "min.insync.replicas": "number of replicas that have a record when it is acknowledged",
    "max.message.bytes": "size of the largest record that the connector sends",
    "message.timestamp.after.max.ms": "clock skew must not stop the pipeline",
    "message.timestamp.type": "the timestamp of a record is its commit time",
}
# Settings that delete records when they are lowered: with which cleanup.policy, and what is lost.
LOWERED = {
    "delete.retention.ms": (
        "compact",
        "tombstones are deleted that a reader may not have read yet: its table keeps the deleted rows",
    ),
    "retention.bytes": (
        "delete",
        "the oldest records are deleted at once, read or not: states, unacknowledged dead letters",
    ),
    "retention.ms": ("delete", "older records are deleted at once, read or not: states, unacknowledged dead letters"),
}
# Settings of state topics. By default Kafka deletes tombstones after a day: the table of a reader that was down over a
# weekend would keep the deleted rows.
COMPACTED = {
    "cleanup.policy": "compact",
    "delete.retention.ms": str(7 * DAY_MS),
    "min.compaction.lag.ms": str(DAY_MS // 24),
    "min.cleanable.dirty.ratio": "0.2",
    "segment.ms": str(DAY_MS),
}


@dataclass(frozen=True)
class Topic:
    """Desired state of a topic. Settings that are not in `config` are left to the broker's defaults."""

    name: str
    partitions: int
    config: dict[str, str]
    reason: str
    replicas: int = 3


def desired_topics(pipeline: Pipeline, environment: Environment) -> list[Topic]:
    """Return every topic that the connector writes to. Connect's producer does not create topics."""
    common = {
        "min.insync.replicas": str(environment.kafka.min_insync_replicas),
        "max.message.bytes": str(environment.connector.max_record_bytes + FRAMING_BYTES),
        "message.timestamp.after.max.ms": ANY_TIMESTAMP,
        "message.timestamp.type": "CreateTime",
    }
    topics = [
        Topic(
            pipeline.topic_of(name),
            aggregate.partitions,
            {**COMPACTED, **common, **aggregate.topic},
            f"latest state of every {name}",
        )
        for name, aggregate in pipeline.routed.items()
    ]
    retention = str(pipeline.dead_letter.retention_days * DAY_MS)
    dead_letter = {"cleanup.policy": "delete", "retention.ms": retention, **common}
    topics.append(
        Topic(pipeline.dead_letter_topic, pipeline.dead_letter.partitions, dead_letter, "rows that cannot be routed")
    )
    short_lived = {"cleanup.policy": "delete", "retention.ms": str(DAY_MS), **common}
    topics.append(Topic(pipeline.heartbeat_topic, 1, short_lived, "Debezium's heartbeats, which advance the slot"))
    if pipeline.connector.transaction_metadata:
        topics.append(Topic(pipeline.transaction_topic, 1, short_lived, "transaction boundaries"))
    return [replace(topic, replicas=environment.kafka.replication_factor) for topic in topics]


def different_settings(topic: Topic, actual: TopicState) -> dict[str, tuple[str, str]]:
    """Return the settings that differ, with their actual and desired values."""
    return {
        key: (actual.config.get(key, ""), value)
        for key, value in topic.config.items()
        if not _same(actual.config.get(key), value)
    }


def _same(actual: str | None, desired: str) -> bool:
    """Compare values as Kafka does: 0.20 equals 0.2, and lists have no order."""
    if actual is None or actual == desired:
        return actual == desired
    try:
        return float(actual) == float(desired)
    except ValueError:
        return sorted(actual.split(",")) == sorted(desired.split(","))


def diff(topics: list[Topic], actual: dict[str, TopicState]) -> list[Change]:
    """Return the topics to create, to grow and to configure."""
    changes = []
    for topic in topics:
        if topic.name not in actual:
            after = f"{topic.partitions} partitions, {topic.replicas} replicas, {topic.config['cleanup.policy']}"
            changes.append(Change("kafka", "topic", topic.name, "create", topic.reason, after=after))
        elif topic.partitions != actual[topic.name].partitions or different_settings(topic, actual[topic.name]):
            changes.append(_update(topic, actual[topic.name]))
    return changes


def _update(topic: Topic, actual: TopicState) -> Change:
    settings = sorted(different_settings(topic, actual).items())
    before = [f"{key}={old}" for key, (old, _) in settings]
    after = [f"{key}={new}" for key, (_, new) in settings]
    reasons = [f"{key}: {SETTINGS.get(key, 'as declared in the pipeline file')}" for key, _ in settings]
    if topic.partitions != actual.partitions:
        before.insert(0, f"{actual.partitions} partitions")
        after.insert(0, f"{topic.partitions} partitions")
        reasons.insert(0, "as declared in the pipeline file; the topic is changed before the connector")
    texts = "; ".join(reasons), ", ".join(before), ", ".join(after)
    return Change("kafka", "topic", topic.name, "update", *texts, danger(topic, actual))


def danger(topic: Topic, actual: TopicState) -> str:
    """Return what adding partitions or changing the clean-up can lose; empty if nothing."""
    dangers = []
    if topic.partitions != actual.partitions:
        dangers.append(
            "keys move to other partitions: tombstones miss the old one, so deleted and old states stay there; "
            "afterwards run `outbox backfill --restart`"
        )
    different = different_settings(topic, actual)
    old, new = (_policies(value) for value in different.get("cleanup.policy", ("", "")))
    if "compact" in new - old:
        dangers.append(
            "compaction removes all but the newest record of each key, and records without a key are rejected"
        )
    if "delete" in new:
        states = ", the latest states of keys among them" if "compact" in old else ""
        dangers.append(f"records older than the retention are deleted{states}")
    policies = _policies(topic.config.get("cleanup.policy", actual.config.get("cleanup.policy", "")))
    dangers += [
        f"{key} {before} → {after}: {LOWERED[key][1]}"
        for key, (before, after) in sorted(different.items())
        if key in LOWERED and LOWERED[key][0] in policies and _is_lower(before, after)
    ]
    return "; ".join(dangers)


def _policies(value: str) -> set[str]:
    return {policy.strip() for policy in value.split(",") if policy.strip()}


def _is_lower(before: str, after: str) -> bool:
    """Return whether less is retained than before; -1 means no limit. False if the actual value is unknown."""
    try:
        old, new = (math.inf if int(value) < 0 else int(value) for value in (before, after))
    except ValueError:
        return False
    return new < old


def refuse_unsafe(topics: list[Topic], actual: dict[str, TopicState]) -> None:
    """Raise RefusedError if a topic has more partitions than declared: Kafka cannot remove partitions."""
    for topic in topics:
        state = actual.get(topic.name)
        if state is not None and state.partitions > topic.partitions:
            raise RefusedError(
                f"topic {topic.name} has {state.partitions} partitions, the pipeline file declares "
                f"{topic.partitions}: Kafka cannot remove partitions",
                f"set `partitions` to {state.partitions} in the pipeline file",
            )
