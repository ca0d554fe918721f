"""Compare the desired and the actual state of the topics, and determine the changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from outbox_events.errors import RefusedError
from outbox_kit.kafka import preconditions
from outbox_kit.kafka.client import ActualTopic
from outbox_kit.kafka.topic_identity import RecordedTopics, has_added_partitions, is_recreated
from outbox_kit.pipeline import Environment, LockedTopic, Pipeline
from outbox_kit.results.changes import Change
from outbox_kit.results.repair_commands import backfill_steps

DAY_MS = 24 * 60 * 60 * 1000
# Allowance for the framing of a record, because max.record.bytes limits only the key, value and headers.
FRAMING_BYTES = 65_536
# The timestamp of a record is its commit time. By default, a broker rejects timestamps more than an hour ahead of its
# clock. With exactly-once, a rejected record fails the task, so that clock skew would stop the pipeline. A limit for
# the past would reject the backlog of an outage that lasted longer.
NO_LIMIT_MS = str(2**63 - 1)

# Purpose of each topic setting. A plan shows the purpose as the reason for changing the setting.
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
    "message.timestamp.before.max.ms": "records are not rejected because they were committed long ago",
    "message.timestamp.type": "the timestamp of a record is its commit time",
    "unclean.leader.election.enable": "a replica that lacks acknowledged records does not become the leader",
}
# Settings of state topics. By default, Kafka deletes tombstones after a day. The table of a sink that was stopped for
# longer than a day would then retain deleted rows.
STATE_TOPIC_CONFIG = {
    "cleanup.policy": "compact",
    "delete.retention.ms": str(7 * DAY_MS),
    "min.compaction.lag.ms": str(DAY_MS // 24),
    "min.cleanable.dirty.ratio": "0.2",
    "segment.ms": str(DAY_MS),
}


@dataclass(frozen=True)
class Topic:
    """Desired state of a topic. For settings that are not in `config`, the broker's defaults apply.

    `aggregate_type` is the aggregate type of a state topic, or None for other topics. `backfill_steps` contains the
    commands that write the states to the topic.
    """

    name: str
    partitions: int
    config: dict[str, str]
    reason: str
    replication_factor: int = 3
    aggregate_type: str | None = None
    backfill_steps: str = ""


def desired_topics(pipeline: Pipeline, environment: Environment) -> list[Topic]:
    """Return every topic that the connector writes to. `apply` creates these topics before the connector."""
    common_config = {
        "min.insync.replicas": str(environment.kafka.min_insync_replicas),
        "max.message.bytes": str(environment.connector.max_record_bytes + FRAMING_BYTES),
        "message.timestamp.after.max.ms": NO_LIMIT_MS,
        "message.timestamp.before.max.ms": NO_LIMIT_MS,
        "message.timestamp.type": "CreateTime",
        "unclean.leader.election.enable": "false",
    }
    topics = [
        Topic(
            pipeline.topic_of(name),
            aggregate.partitions,
            {**STATE_TOPIC_CONFIG, **common_config, **aggregate.topic},
            f"latest state of every {name}",
            aggregate_type=name if name in pipeline.aggregates else None,
            backfill_steps=backfill_steps(pipeline, [name]),
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
    """Return a mapping from each setting that differs to its actual and its desired value."""
    return {
        key: (actual.config.get(key, ""), value)
        for key, value in topic.config.items()
        if not _is_same_value(actual.config.get(key), value)
    }


def _is_same_value(actual: str | None, desired: str) -> bool:
    """Return whether Kafka treats two values as equal, for example 0.20 and 0.2, or lists in different orders."""
    if actual is None or actual == desired:
        return actual == desired
    try:
        return float(actual) == float(desired)
    except ValueError:
        return sorted(actual.split(",")) == sorted(desired.split(","))


def diff(topics: list[Topic], actual: dict[str, ActualTopic], recorded: RecordedTopics) -> list[Change]:
    """Return a change for each topic that differs from its desired state or from the topic in the lock file."""
    changes = []
    for topic in topics:
        locked_topic = recorded.get(topic.name)
        if topic.name not in actual:
            changes.append(_creation(topic, locked_topic))
        elif _differs(topic, actual[topic.name], locked_topic):
            changes.append(_update(topic, actual[topic.name], locked_topic))
    return changes


def _creation(topic: Topic, recorded: LockedTopic | None) -> Change:
    policy = topic.config["cleanup.policy"]
    after = f"{topic.partitions} partitions, {topic.replication_factor} replicas, {policy}"
    reason, danger = topic.reason, ""
    if recorded is not None:
        reason = f"{reason}; the topic was deleted outside outbox-kit"
        danger = preconditions.lost_states(topic.aggregate_type, topic.backfill_steps) if topic.aggregate_type else ""
    return Change("kafka", "topic", topic.name, "create", reason, after=after, danger=danger)


def _differs(topic: Topic, actual: ActualTopic, recorded: LockedTopic | None) -> bool:
    has_difference = topic.partitions != actual.partitions or bool(different_settings(topic, actual))
    return has_difference or is_recreated(actual, recorded) or has_added_partitions(actual, recorded)


def _update(topic: Topic, actual: ActualTopic, recorded: LockedTopic | None) -> Change:
    settings = sorted(different_settings(topic, actual).items())
    before = [f"{key}={actual_value}" for key, (actual_value, _) in settings]
    after = [f"{key}={desired_value}" for key, (_, desired_value) in settings]
    reasons = [f"{key}: {SETTING_PURPOSES.get(key, 'as declared in the pipeline file')}" for key, _ in settings]
    if topic.partitions != actual.partitions:
        before.insert(0, f"{actual.partitions} partitions")
        after.insert(0, f"{topic.partitions} partitions")
        reasons.insert(0, "partitions: as declared in the pipeline file; the topic is changed before the connector")
    elif recorded is not None and has_added_partitions(actual, recorded):
        before.insert(0, f"{recorded.partitions} partitions (lock file)")
        after.insert(0, f"{actual.partitions} partitions")
        reasons.insert(0, "partitions: changed outside outbox-kit")
    if recorded is not None and is_recreated(actual, recorded):
        before.insert(0, f"id {recorded.id} (lock file)")
        after.insert(0, f"id {actual.id}")
        reasons.insert(0, "id: the topic was deleted and created again outside outbox-kit")
    texts = "; ".join(reasons), ", ".join(before), ", ".join(after)
    return Change("kafka", "topic", topic.name, "update", *texts, "; ".join(_dangers(topic, actual, recorded)))


def _dangers(topic: Topic, actual: ActualTopic, recorded: LockedTopic | None) -> Iterator[str]:
    """Yield the dangers of updating a topic. Only state topics can lose states."""
    if topic.aggregate_type is not None:
        if is_recreated(actual, recorded):
            yield preconditions.lost_states(topic.aggregate_type, topic.backfill_steps)
        if topic.partitions != actual.partitions or has_added_partitions(actual, recorded):
            yield preconditions.NEW_PARTITIONS
    yield from preconditions.setting_dangers(topic.config, actual.config, different_settings(topic, actual))


def refuse_fewer_partitions(topics: list[Topic], actual: dict[str, ActualTopic]) -> None:
    """Raise RefusedError if a topic has more partitions than declared, because Kafka cannot remove partitions."""
    for topic in topics:
        state = actual.get(topic.name)
        if state is not None and state.partitions > topic.partitions:
            hint = f"set `partitions` to {state.partitions} in the pipeline file, or recreate a topic without this key"
            raise RefusedError(
                f"topic {topic.name} has {state.partitions} partitions, but the pipeline needs {topic.partitions}, and "
                "Kafka cannot remove partitions",
                hint if topic.aggregate_type is None else preconditions.MOVE_HINT,
            )
