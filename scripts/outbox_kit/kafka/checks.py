"""What `outbox verify` checks in Kafka."""

from __future__ import annotations

from outbox_kit.checking import Check, check
from outbox_kit.kafka.client import TopicState
from outbox_kit.kafka.state import Topic, different_settings


def run(topics: list[Topic], actual: dict[str, TopicState]) -> list[Check]:
    """Existence, partition counts and settings of every topic of the pipeline."""
    present = [topic for topic in topics if topic.name in actual]
    return [_exist(topics, actual), _partitions(present, actual), _settings(present, actual)]


def _exist(topics: list[Topic], actual: dict[str, TopicState]) -> Check:
    missing = sorted(topic.name for topic in topics if topic.name not in actual)
    return check(
        "kafka.topics",
        not missing,
        seen=f"missing: {', '.join(missing)}" if missing else f"all {len(topics)}",
        expected=f"all {len(topics)} topics of the pipeline",
        remedy="run `outbox apply`; a missing topic blocks the connector's producer",
    )


def _partitions(topics: list[Topic], actual: dict[str, TopicState]) -> Check:
    wrong = [
        f"{topic.name} has {actual[topic.name].partitions}, not {topic.partitions}"
        for topic in topics
        if actual[topic.name].partitions != topic.partitions
    ]
    return check(
        "kafka.partitions",
        not wrong,
        seen="; ".join(wrong) or "as declared",
        expected="as declared",
        remedy="set `partitions` in the pipeline file to the live count; see docs/contract.md",
    )


def _settings(topics: list[Topic], actual: dict[str, TopicState]) -> Check:
    wrong = [
        f"{topic.name}: {key} is {old}, not {new}"
        for topic in topics
        for key, (old, new) in different_settings(topic, actual[topic.name]).items()
    ]
    return check(
        "kafka.topic-settings",
        not wrong,
        seen="; ".join(wrong) or "as declared",
        expected="as declared, business topics compacted",
        remedy="run `outbox apply`",
    )
