"""Creates, grows and alters topics."""

from __future__ import annotations

from outbox_kit.changes import Change
from outbox_kit.kafka.client import KafkaClient
from outbox_kit.kafka.state import Topic
from outbox_kit.pipeline import Environment
from outbox_kit.progress import Progress


def apply(
    client: KafkaClient,
    environment: Environment,
    topics: list[Topic],
    changes: list[Change],
    progress: Progress,
) -> None:
    """Make `changes`, which diff() found for `topics`. Raises RejectedError, UnreachableError."""
    by_name = {topic.name: topic for topic in topics}
    live = client.topics() if any(change.action == "update" for change in changes) else {}
    for change in changes:
        progress(f"{change.action} {change.object}")
        topic = by_name[change.object.removeprefix("topic ")]
        if change.action == "create":
            client.create(
                topic.name,
                partitions=topic.partitions,
                replication_factor=environment.kafka.replication_factor,
                config=topic.config,
            )
            continue
        if live[topic.name][0] < topic.partitions:
            client.grow(topic.name, topic.partitions)
        client.set_config(topic.name, topic.config)
