"""Execution of the planned changes of topics."""

from __future__ import annotations

from outbox_kit.changes import Change
from outbox_kit.kafka.client import KafkaClient
from outbox_kit.kafka.state import Topic
from outbox_kit.pipeline import Environment
from outbox_kit.progress import Reporter


def apply(
    client: KafkaClient, environment: Environment, topics: list[Topic], changes: list[Change], progress: Reporter
) -> None:
    """Execute `changes`, the result of state.diff() for `topics`. Raises RejectedError, UnreachableError."""
    topics_by_name = {topic.name: topic for topic in topics}
    actual_topics = client.topics() if any(change.action == "update" for change in changes) else {}
    for change in changes:
        progress(change.title)
        topic = topics_by_name[change.name]
        if change.action == "create":
            factor = environment.kafka.replication_factor
            client.create(topic.name, partitions=topic.partitions, replication_factor=factor, config=topic.config)
            continue
        if actual_topics[topic.name][0] < topic.partitions:
            client.add_partitions(topic.name, topic.partitions)
        client.set_config(topic.name, topic.config)
