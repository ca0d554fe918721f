"""Topics that the pipeline needs, topics as they are, and the difference."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

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


# What each setting is for; shown where it is changed, and in docs/plan.md.
SETTINGS = {
    "cleanup.policy": "which records may go: all but the newest of each key, or what is older than the retention",
    "retention.ms": "how long records are kept",
    "delete.retention.ms": "a reader that was down so long still meets the tombstones: no deleted row stays in a table",
    "min.compaction.lag.ms": "a record stays readable so long, also when a newer one has replaced it",
    "min.cleanable.dirty.ratio": "share of replaced records that starts a compaction: bounds what a first read costs",
    "segment.ms": "only closed segments are compacted: on a quiet topic one is closed after so long",
    "min.insync.replicas": "acknowledged means: so many replicas have it",
    "max.message.bytes": "takes the largest record that the connector sends",
    "message.timestamp.after.max.ms": "a clock that is ahead must not stop the pipeline",
    "message.timestamp.type": "the time of a record is its commit's",
}
# Settings that delete records when they are lowered: under which clean-up, and what goes.
LOWERED = {
    "delete.retention.ms": (
        "compact",
        "tombstones go that a reader which was down so long has not seen: its table keeps the deleted rows",
    ),
    "retention.bytes": ("delete", "the oldest records go at once, read or not: states, unacknowledged dead letters"),
    "retention.ms": ("delete", "older records go at once, read or not: states, unacknowledged dead letters"),
}
# Topics of states. Kafka's own defaults let a tombstone go after a day: a reader that was down over a weekend would
# keep the deleted rows for ever.
COMPACTED = {
    "cleanup.policy": "compact",
    "delete.retention.ms": str(7 * DAY_MS),
    "min.compaction.lag.ms": str(DAY_MS // 24),
    "min.cleanable.dirty.ratio": "0.2",
    "segment.ms": str(DAY_MS),
}


@dataclass(frozen=True)
class Topic:
    """One topic as the files want it. Settings that are not named are the broker's business."""

    name: str
    partitions: int
    config: dict[str, str]
    why: str
    replicas: int = 3


def desired_topics(pipeline: Pipeline, environment: Environment) -> list[Topic]:
    """Every topic that the connector writes to: Connect's producer never creates one itself."""
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
    return [replace(topic, replicas=environment.kafka.replication_factor) for topic in topics]


def different_settings(topic: Topic, actual: TopicState) -> dict[str, tuple[str, str]]:
    """Settings that differ: name to (live value, wanted value)."""
    return {
        key: (actual.config.get(key, ""), value)
        for key, value in topic.config.items()
        if not _same(actual.config.get(key), value)
    }


def _same(live: str | None, wanted: str) -> bool:
    """Values as Kafka reads them: a broker may answer 0.20 for 0.2, or delete,compact in another order."""
    if live is None or live == wanted:
        return live == wanted
    try:
        return float(live) == float(wanted)
    except ValueError:
        return sorted(live.split(",")) == sorted(wanted.split(","))


def diff(topics: list[Topic], actual: dict[str, TopicState]) -> list[Change]:
    """Topics to create, to grow, and settings to change."""
    changes = []
    for topic in topics:
        if topic.name not in actual:
            after = f"{topic.partitions} partitions, {topic.replicas} replicas, {topic.config['cleanup.policy']}"
            changes.append(Change("kafka", f"topic {topic.name}", "create", topic.why, after=after))
        elif topic.partitions != actual[topic.name].partitions or different_settings(topic, actual[topic.name]):
            changes.append(_update(topic, actual[topic.name]))
    return changes


def _update(topic: Topic, live: TopicState) -> Change:
    settings = sorted(different_settings(topic, live).items())
    before = [f"{key}={old}" for key, (old, _) in settings]
    after = [f"{key}={new}" for key, (_, new) in settings]
    why = [f"{key}: {SETTINGS[key]}" if key in SETTINGS else f"{key}: as the pipeline file says" for key, _ in settings]
    if topic.partitions != live.partitions:
        before.insert(0, f"{live.partitions} partitions")
        after.insert(0, f"{topic.partitions} partitions")
        why.insert(0, "the topic first, then the connector, which restarts its task")
    name = f"topic {topic.name}"
    return Change("kafka", name, "update", "; ".join(why), ", ".join(before), ", ".join(after), danger(topic, live))


def danger(topic: Topic, live: TopicState) -> str:
    """What growing a topic or changing its clean-up can lose, in words; empty: nothing."""
    found = []
    if topic.partitions != live.partitions:
        found.append(
            "keys move to other partitions: tombstones miss the old one, so deleted and old states stay there; "
            "write the newest state of every aggregate again afterwards"
        )
    different = different_settings(topic, live)
    old, new = (_policies(value) for value in different.get("cleanup.policy", ("", "")))
    if "compact" in new - old:
        found.append("compaction removes all but the newest record of each key, and the topic takes no record without")
    if "delete" in new:
        states = ", the newest states of keys among them" if "compact" in old else ""
        found.append(f"records older than the retention are deleted{states}")
    policies = _policies(topic.config.get("cleanup.policy", live.config.get("cleanup.policy", "")))
    found += [
        f"{key} {was} → {wanted}: {LOWERED[key][1]}"
        for key, (was, wanted) in sorted(different.items())
        if key in LOWERED and LOWERED[key][0] in policies and _lowered(was, wanted)
    ]
    return "; ".join(found)


def _policies(value: str) -> set[str]:
    return {policy.strip() for policy in value.split(",") if policy.strip()}


def _lowered(live: str, wanted: str) -> bool:
    """Whether less is kept than before; -1 is no limit."""
    try:
        old, new = (math.inf if int(value) < 0 else int(value) for value in (live, wanted))
    except ValueError:
        return False  # the live value is not known
    return new < old


def refuse_unsafe(topics: list[Topic], actual: dict[str, TopicState]) -> None:
    """Kafka never lowers a partition count. Raises RefusedError."""
    for topic in topics:
        live = actual.get(topic.name)
        if live is not None and live.partitions > topic.partitions:
            raise RefusedError(
                f"topic {topic.name} has {live.partitions} partitions, the pipeline file says {topic.partitions}: "
                "a topic cannot lose partitions",
                f"set `partitions` to {live.partitions}",
            )
