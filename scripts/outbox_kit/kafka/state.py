"""Topics that the pipeline needs, topics as they are, and the difference."""

from __future__ import annotations

from dataclasses import dataclass

from outbox_kit.changes import Change
from outbox_kit.errors import RefusedError
from outbox_kit.kafka.client import TopicState
from outbox_kit.pipeline import Environment, Pipeline

DAY_MS = 24 * 60 * 60 * 1000
# The broker adds its own framing to a record; the router counts key, value and headers.
FRAMING_BYTES = 65_536
# The record's timestamp is the commit time. A broker refuses one that is over an hour ahead of its own clock,
# and under exactly-once that ends the task at commit, row after row: a clock must not stop the pipeline.
ANY_TIMESTAMP = str(2**63 - 1)


@dataclass(frozen=True)
class Topic:
    """One topic as the files want it. Settings that are not named are the broker's business."""

    name: str
    partitions: int
    config: dict[str, str]
    why: str


def desired_topics(pipeline: Pipeline, environment: Environment) -> list[Topic]:
    """Every topic that the connector writes to: Connect's producer never creates one itself."""
    common = {
        "min.insync.replicas": str(environment.kafka.min_insync_replicas),
        "max.message.bytes": str(environment.connector.max_record_bytes + FRAMING_BYTES),
        "message.timestamp.after.max.ms": ANY_TIMESTAMP,
    }
    topics = [
        Topic(
            pipeline.topic_of(name),
            aggregate.partitions,
            {"cleanup.policy": "compact", **common, **aggregate.topic},
            f"newest state of every {name}",
        )
        for name, aggregate in pipeline.routed.items()
    ]
    retention = str(pipeline.dead_letter.retention_days * DAY_MS)
    dead_letter = {"cleanup.policy": "delete", "retention.ms": retention, **common}
    topics.append(
        Topic(pipeline.dead_letter_topic, pipeline.dead_letter.partitions, dead_letter, "rows that fit no route")
    )
    short_lived = {"cleanup.policy": "delete", "retention.ms": str(DAY_MS), **common}
    topics.append(Topic(pipeline.heartbeat_topic, 1, short_lived, "Debezium's heartbeats move the slot"))
    if pipeline.connector.transaction_metadata:
        topics.append(Topic(pipeline.transaction_topic, 1, short_lived, "transaction boundaries"))
    return topics


def different_settings(topic: Topic, actual: TopicState) -> dict[str, tuple[str, str]]:
    """Settings that differ: name to (live value, wanted value)."""
    return {
        key: (actual.config.get(key, ""), value)
        for key, value in topic.config.items()
        if actual.config.get(key) != value
    }


def diff(topics: list[Topic], actual: dict[str, TopicState]) -> list[Change]:
    """Topics to create and settings to change."""
    changes = []
    for topic in topics:
        if topic.name not in actual:
            after = f"{topic.partitions} partitions, {topic.config['cleanup.policy']}"
            changes.append(Change("kafka", f"topic {topic.name}", "create", topic.why, after=after))
            continue
        different = different_settings(topic, actual[topic.name])
        if different:
            before = ", ".join(f"{key}={old}" for key, (old, _) in sorted(different.items()))
            after = ", ".join(f"{key}={new}" for key, (_, new) in sorted(different.items()))
            changes.append(Change("kafka", f"topic {topic.name}", "update", topic.why, before, after))
    return changes


def refuse_unsafe(topics: list[Topic], actual: dict[str, TopicState]) -> None:
    """A changed partition count sends a key elsewhere than before. Raises RefusedError."""
    for topic in topics:
        live = actual.get(topic.name)
        if live is not None and live.partitions != topic.partitions:
            raise RefusedError(
                f"topic {topic.name} has {live.partitions} partitions, the pipeline file says {topic.partitions}: "
                "with another count keys move, and tombstones miss the old partition",
                "set `partitions` to the live count; to grow, make a new topic and republish into it",
            )
