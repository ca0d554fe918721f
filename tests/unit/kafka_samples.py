"""Topics of a cluster after apply, and their entries in the lock file."""

from __future__ import annotations

from outbox_kit.kafka.client import ActualTopic
from outbox_kit.kafka.state import Topic
from outbox_kit.kafka.topic_identity import locked_topic
from outbox_kit.pipeline import LockedTopic


def actual_topics(topics: list[Topic]) -> dict[str, ActualTopic]:
    """Return the topics as apply creates them."""
    return {
        topic.name: ActualTopic(topic.partitions, topic.replication_factor, dict(topic.config), f"id of {topic.name}")
        for topic in topics
    }


def locked_topics(topics: list[Topic]) -> dict[str, LockedTopic]:
    """Return the entries that apply writes for the topics of actual_topics()."""
    actual = actual_topics(topics)
    return {topic.name: locked_topic(topic.name, actual[topic.name], topic.aggregate_type, {}) for topic in topics}
