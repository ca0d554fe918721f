"""Execute the planned changes to topics."""

from __future__ import annotations

from outbox_events.errors import RejectedError
from outbox_events.waiting import Observation, wait_for
from outbox_kit.kafka.client import ActualTopic, KafkaClient
from outbox_kit.kafka.state import Topic
from outbox_kit.kafka.topic_identity import RecordedTopics, is_recreated, locked_topic
from outbox_kit.pipeline import LockedTopic
from outbox_kit.results import Reporter
from outbox_kit.results.changes import Change

TOPIC_TIMEOUT_S = 30


def apply(client: KafkaClient, topics: list[Topic], changes: list[Change], progress: Reporter) -> None:
    """Execute `changes`, which state.diff() returned for `topics`. Raises RejectedError and UnreachableError."""
    topics_by_name = {topic.name: topic for topic in topics}
    actual_topics = client.topics() if any(change.action == "update" for change in changes) else {}
    for change in changes:
        progress(change.title)
        topic = topics_by_name[change.name]
        if change.action == "create":
            factor = topic.replication_factor
            client.create(topic.name, partitions=topic.partitions, replication_factor=factor, config=topic.config)
            continue
        if actual_topics[topic.name][0] < topic.partitions:
            client.add_partitions(topic.name, topic.partitions)
        client.set_config(topic.name, topic.config)


def validate(client: KafkaClient, topics: list[Topic], changes: list[Change]) -> None:
    """Raise RejectedError if the brokers would reject a topic to create, or the settings of a topic to change."""
    topics_by_name = {topic.name: topic for topic in topics}
    for change in changes:
        topic = topics_by_name[change.name]
        if change.action == "create":
            count, factor = topic.partitions, topic.replication_factor
            client.create(
                topic.name, partitions=count, replication_factor=factor, config=topic.config, only_validate=True
            )
        else:
            client.set_config(topic.name, topic.config, only_validate=True)


def recorded_topics(
    client: KafkaClient, topics: list[Topic], changes: list[Change], recorded: RecordedTopics
) -> dict[str, LockedTopic]:
    """Return the lock file's entries for `topics` after `changes`, and for unused topics that still exist.

    `recorded` contains the current entries. Raises UnreachableError, WaitTimeoutError.
    """
    unused = unused_topics(client, topics, recorded)
    actual = _wait_for_topics(client, [topic.name for topic in topics])
    created_names = {change.name for change in changes if change.action == "create"}
    return {
        topic.name: locked_topic(
            topic.name, actual[topic.name], topic.aggregate_type, recorded, created=topic.name in created_names
        )
        for topic in topics
    } | {name: recorded[name].model_copy(update={"aggregate_type": None, "pending_backfill": None}) for name in unused}


def unused_topics(client: KafkaClient, topics: list[Topic], recorded: RecordedTopics) -> list[str]:
    """Return the recorded topics that exist, although the pipeline no longer has them. Raises UnreachableError.

    A topic that was created again belongs to somebody else.
    """
    actual = client.describe(sorted(recorded.keys() - {topic.name for topic in topics}))
    return [name for name, entry in actual.items() if not is_recreated(entry, recorded[name])]


def existing_topics(client: KafkaClient, topics: list[Topic], recorded: RecordedTopics) -> dict[str, LockedTopic]:
    """Return the lock file's entries for those `topics` that exist. Raises UnreachableError."""
    actual = client.describe(topic.name for topic in topics)
    return {
        topic.name: locked_topic(topic.name, actual[topic.name], topic.aggregate_type, recorded)
        for topic in topics
        if topic.name in actual
    }


def _wait_for_topics(client: KafkaClient, names: list[str]) -> dict[str, ActualTopic]:
    """Wait until the brokers return all topics, because new topics reach a broker with a delay. Describe the topics."""

    def poll() -> Observation[dict[str, ActualTopic]]:
        try:
            actual = client.describe(names)
        except RejectedError as error:
            return Observation(None, error.message)
        missing_names = [name for name in names if name not in actual]
        return Observation(None if missing_names else actual, f"missing: {', '.join(missing_names)}")

    return wait_for("the brokers to return every topic", poll, seconds=TOPIC_TIMEOUT_S)
