"""Requests about topics and brokers. They raise KafkaException, and TimeoutError without a response of librdkafka."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from confluent_kafka import IsolationLevel, KafkaError, TopicCollection, TopicPartition, Uuid
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

REQUEST_S = 20.0
EARLIEST, LATEST = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]
# After these errors librdkafka retries until the call times out. The timeout error does not contain the cause.
TIMEOUT_CAUSES = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._RESOLVE})
NO_ID = str(Uuid(0, 0))


class ClientErrors:
    """Callback for librdkafka that stores the last cause of a timeout, such as a wrong password or an unknown host."""

    cause = ""

    def __call__(self, error: KafkaError) -> None:
        if error.code() in TIMEOUT_CAUSES:
            self.cause = error.str()


def describe(
    admin: AdminClient, topics: Collection[str], seconds: float = REQUEST_S
) -> dict[str, tuple[str, list[int]]]:
    """Return id and partition numbers of topics, by name.

    The id differs from that of an earlier topic with the same name. It is empty if the cluster assigns no ids.
    """
    futures = admin.describe_topics(TopicCollection([*topics]), request_timeout=seconds) if topics else {}
    found = {name: future.result(seconds + 5) for name, future in futures.items()}
    ids = {name: str(topic.topic_id) for name, topic in found.items()}
    return {name: ("" if ids[name] == NO_ID else ids[name], [p.id for p in found[name].partitions]) for name in found}


def offsets(
    admin: AdminClient, topic: str, numbers: Iterable[int], spec: OffsetSpec, level: IsolationLevel, seconds: float
) -> dict[int, int]:
    """Return the first or last offset of partitions by number."""
    request = {TopicPartition(topic, number): spec for number in numbers}
    futures = admin.list_offsets(request, isolation_level=level, request_timeout=seconds)
    return {place.partition: future.result(seconds + 5).offset for place, future in futures.items()}


def configs(
    admin: AdminClient, names: Collection[str], kind: ResourceType = ResourceType.TOPIC, *, seconds: float = REQUEST_S
) -> dict[str, dict[str, str]]:
    """Return the effective values of all settings that are not null, by the name of the topic or broker."""
    resources = [ConfigResource(kind, name) for name in names]
    futures = admin.describe_configs(resources, request_timeout=seconds) if resources else {}
    return {
        resource.name: {
            key: entry.value for key, entry in future.result(seconds + 5).items() if entry.value is not None
        }
        for resource, future in futures.items()
    }
