"""Desired and actual state of the topics, and the changes between them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from outbox_kit.changes import Change
from outbox_kit.errors import RefusedError
from outbox_kit.kafka.client import ActualTopic
from outbox_kit.pipeline import Environment, Pipeline

DAY_MS = 24 * 60 * 60 * 1000
# Allowance for the framing of a record, because max.record.bytes limits only its key, value and headers.
FRAMING_BYTES = 65_536
# The timestamp of a record is its commit time. By default a broker rejects timestamps over an hour ahead of its
# clock. With exactly-once the task then fails, so that clock skew would stop the pipeline.
NO_LIMIT_MS = str(2**63 - 1)

# Purpose of each topic setting. It is the reason that a plan shows for a change of the setting.
SETTING_PURPOSES = {
    "cleanup.policy": "deletes all records but the latest of a key (compact), or records beyond the retention (delete)",
    "retention.ms": "time after which records are deleted",
    "delete.retention.ms": "retention of tombstones; a consumer that is stopped for longer misses deletions",
    "min.compaction.lag.ms": "minimum age of a record that compaction removes",
    "min.cleanable.dirty.ratio": "share of uncompacted data that starts a compaction; limits the size of the topic",
    "segment.ms": "maximum age of the active segment, which is not compacted",
    "min.insync.replicas": "number of replicas that must have a record before it is acknowledged",
    "max.message.bytes": "maximum size in bytes of a record that the connector sends",
    "message.timestamp.after.max.ms": "records are not rejected because of clock skew",
    "message.timestamp.type": "the timestamp of a record is its commit time",
}
# Settings whose decrease deletes records, with the cleanup.policy that uses the setting and a description of the loss.
RETENTION_SETTINGS = {
    "delete.retention.ms": (
        "compact",
        "tombstones are deleted before a stopped consumer has read them: its table retains the deleted rows",
    ),
    "retention.bytes": ("delete", "the oldest records are deleted, including states and unacknowledged dead letters"),
    "retention.ms": ("delete", "older records are deleted, including states and unacknowledged dead letters"),
}
# Settings of state topics. By default Kafka deletes tombstones after a day. A sink that was stopped for longer
# would retain the deleted rows in its table.
STATE_TOPIC_CONFIG = {
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
    replication_factor: int = 3


def desired_topics(pipeline: Pipeline, environment: Environment) -> list[Topic]:
    """Return every topic that the connector writes to. `apply` creates these topics before the connector."""
    common_config = {
        "min.insync.replicas": str(environment.kafka.min_insync_replicas),
        "max.message.bytes": str(environment.connector.max_record_bytes + FRAMING_BYTES),
        "message.timestamp.after.max.ms": NO_LIMIT_MS,
        "message.timestamp.type": "CreateTime",
    }
    topics = [
        Topic(
            pipeline.topic_of(name),
            aggregate.partitions,
            {**STATE_TOPIC_CONFIG, **common_config, **aggregate.topic},
            f"latest state of every {name}",
        )
        for name, aggregate in pipeline.routed.items()
    ]
    retention = str(pipeline.dead_letter.retention_days * DAY_MS)
    dead_letter_config = {"cleanup.policy": "delete", "retention.ms": retention, **common_config}
    partitions = pipeline.dead_letter.partitions
    topics.append(Topic(pipeline.dead_letter_topic, partitions, dead_letter_config, "rows that cannot be routed"))
    one_day_config = {"cleanup.policy": "delete", "retention.ms": str(DAY_MS), **common_config}
    topics.append(Topic(pipeline.heartbeat_topic, 1, one_day_config, "Debezium's heartbeats, which advance the slot"))
    if pipeline.connector.transaction_metadata:
        topics.append(Topic(pipeline.transaction_topic, 1, one_day_config, "transaction boundaries"))
    return [replace(topic, replication_factor=environment.kafka.replication_factor) for topic in topics]


def different_settings(topic: Topic, actual: ActualTopic) -> dict[str, tuple[str, str]]:
    """Return the actual and the desired value of each setting that differs, by key."""
    return {
        key: (actual.config.get(key, ""), value)
        for key, value in topic.config.items()
        if not _is_same_value(actual.config.get(key), value)
    }


def _is_same_value(actual: str | None, desired: str) -> bool:
    """Return whether two values are equal for Kafka: 0.20 equals 0.2, and the order of a list does not matter."""
    if actual is None or actual == desired:
        return actual == desired
    try:
        return float(actual) == float(desired)
    except ValueError:
        return sorted(actual.split(",")) == sorted(desired.split(","))


def diff(topics: list[Topic], actual: dict[str, ActualTopic]) -> list[Change]:
    """Return a change for each topic that does not exist, or whose partition count or settings differ."""
    changes = []
    for topic in topics:
        if topic.name not in actual:
            policy = topic.config["cleanup.policy"]
            after = f"{topic.partitions} partitions, {topic.replication_factor} replicas, {policy}"
            changes.append(Change("kafka", "topic", topic.name, "create", topic.reason, after=after))
        elif topic.partitions != actual[topic.name].partitions or different_settings(topic, actual[topic.name]):
            changes.append(_update(topic, actual[topic.name]))
    return changes


def _update(topic: Topic, actual: ActualTopic) -> Change:
    settings = sorted(different_settings(topic, actual).items())
    before = [f"{key}={actual_value}" for key, (actual_value, _) in settings]
    after = [f"{key}={desired_value}" for key, (_, desired_value) in settings]
    reasons = [f"{key}: {SETTING_PURPOSES.get(key, 'as declared in the pipeline file')}" for key, _ in settings]
    if topic.partitions != actual.partitions:
        before.insert(0, f"{actual.partitions} partitions")
        after.insert(0, f"{topic.partitions} partitions")
        reasons.insert(0, "partitions: as declared in the pipeline file; the topic is changed before the connector")
    texts = "; ".join(reasons), ", ".join(before), ", ".join(after)
    return Change("kafka", "topic", topic.name, "update", *texts, danger(topic, actual))


def danger(topic: Topic, actual: ActualTopic) -> str:
    """Return a description of the data that more partitions, a new policy or less retention can lose; may be empty."""
    dangers = []
    if topic.partitions != actual.partitions:
        dangers.append(
            "keys move to other partitions: new tombstones do not reach the previous partition of their key, where "
            "earlier states remain; after the change run `outbox backfill --restart`"
        )
    different_values = different_settings(topic, actual)
    old_policies, new_policies = (_policies(value) for value in different_values.get("cleanup.policy", ("", "")))
    if "compact" in new_policies - old_policies:
        dangers.append(
            "compaction removes all but the latest record of each key, and records without a key are rejected"
        )
    if "delete" in new_policies:
        lost_states = ", including the latest states of keys" if "compact" in old_policies else ""
        dangers.append(f"records older than the retention are deleted{lost_states}")
    policies = _policies(topic.config.get("cleanup.policy", actual.config.get("cleanup.policy", "")))
    dangers += [
        f"{key} {before} → {after}: {RETENTION_SETTINGS[key][1]}"
        for key, (before, after) in sorted(different_values.items())
        if key in RETENTION_SETTINGS and RETENTION_SETTINGS[key][0] in policies and _is_lower(before, after)
    ]
    return "; ".join(dangers)


def _policies(value: str) -> set[str]:
    return {policy.strip() for policy in value.split(",") if policy.strip()}


def _is_lower(before: str, after: str) -> bool:
    """Return whether `after` retains less than `before`. -1 means no limit. Return False if a value is not a number."""
    try:
        old_limit, new_limit = (math.inf if int(value) < 0 else int(value) for value in (before, after))
    except ValueError:
        return False
    return new_limit < old_limit


def refuse_fewer_partitions(topics: list[Topic], actual: dict[str, ActualTopic]) -> None:
    """Raise RefusedError if a topic has more partitions than declared: Kafka cannot remove partitions."""
    for topic in topics:
        state = actual.get(topic.name)
        if state is not None and state.partitions > topic.partitions:
            raise RefusedError(
                f"topic {topic.name} has {state.partitions} partitions, but the pipeline needs {topic.partitions}, and "
                "Kafka cannot remove partitions",
                f"set `partitions` to {state.partitions} in the pipeline file, or recreate a topic without this key",
            )
