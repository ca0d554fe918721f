"""Send metadata requests. They raise KafkaException, or TimeoutError if librdkafka does not respond."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from operator import itemgetter
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition, Uuid
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType, TopicDescription

from outbox_events.errors import UnreachableError

REQUEST_S = 20.0
RETRY_S = 0.1
READ_COMMITTED, READ_UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
EARLIEST, LATEST = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]
# After these errors, librdkafka retries until the call times out. The timeout error does not contain the cause.
TIMEOUT_CAUSES = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._RESOLVE})
# A partition has no leader because the topic was just created, its leader is moving to another broker, or a broker that
# has restarted does not know the epoch of the leader yet.
NO_LEADER = frozenset(
    {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError._NOENT,  # no partition has a leader
    }
)
NO_ID = str(Uuid(0, 0))
# Callbacks run only in a client that is polled. Statistics that are not passed to a callback would accumulate.
CONSUMER_ONLY = ("on_commit", "error_cb", "stats_cb", "throttle_cb", "logger", "statistics.interval.ms")

T = TypeVar("T")
_ADMIN_CLIENTS = WeakValueDictionary[tuple[int, str], AdminClient]()


@dataclass(frozen=True)
class Bounds:
    """Log start offset and end of a partition. By default, the end is the last stable offset (read_committed)."""

    first: int
    end: int


READ_HINT = "check that the topic exists, and check the brokers and the settings and permissions of the client"


def isolation_level(settings: Mapping[str, Any]) -> IsolationLevel:
    """Return the isolation level of a consumer with these settings."""
    return READ_UNCOMMITTED if settings.get("isolation.level") == "read_uncommitted" else READ_COMMITTED


class ClientErrors:
    """Error callback that stores why the next request will time out, such as a wrong password or unknown host."""

    cause = ""

    def __call__(self, error: KafkaError) -> None:
        if error.code() in TIMEOUT_CAUSES:
            self.cause = error.str()


def unreadable(topics: str, error: KafkaError, cause: str = "", hint: str = READ_HINT) -> UnreachableError:
    """Return the error for topics that cannot be read. `cause` is an earlier connection error."""
    is_missing = error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
    reason = "it does not exist" if is_missing else error.str()
    return UnreachableError(f"cannot read topic {topics}: {reason}{cause and f'; {cause}'}", hint)


def admin_client(settings: Mapping[str, Any]) -> AdminClient:
    """Return an admin client for the cluster of a consumer with these settings.

    Calls with equal settings return the same client while it is in use, because each client has its own threads and
    connections. A process that was forked gets its own.
    """
    client_settings = {name: value for name, value in settings.items() if name not in CONSUMER_ONLY}
    # A digest, because the settings contain passwords.
    key = os.getpid(), sha256(repr(sorted(client_settings.items(), key=itemgetter(0))).encode()).hexdigest()
    client = _ADMIN_CLIENTS.get(key)
    if client is None:
        # Without the log level, the client would warn about consumer properties.
        client = _ADMIN_CLIENTS[key] = AdminClient({**client_settings, "log_level": 0})
    return client


def describe(
    admin: AdminClient, topics: Collection[str], seconds: float = REQUEST_S
) -> dict[str, tuple[str, list[int]]]:
    """Return a mapping from topic names to topic ids and partition numbers.

    A recreated topic gets a new id. The id is empty if the cluster does not assign topic ids.
    """

    def request() -> dict[str, TopicDescription]:
        futures = admin.describe_topics(TopicCollection([*topics]), request_timeout=seconds)
        return {name: future.result(seconds + 5) for name, future in futures.items()}

    found = _repeat_without_leader(request, seconds) if topics else {}
    ids = {name: str(topic.topic_id) for name, topic in found.items()}
    return {name: ("" if ids[name] == NO_ID else ids[name], [p.id for p in found[name].partitions]) for name in found}


def bounds(
    admin: AdminClient,
    topic: str,
    numbers: Collection[int],
    level: IsolationLevel = READ_COMMITTED,
    seconds: float = REQUEST_S,
    *,
    since: float | None = None,
) -> dict[int, Bounds]:
    """Return a mapping from partition numbers to bounds. With READ_UNCOMMITTED, the end is the high watermark.

    With the Unix time `since`, `first` is the offset of the first record since then, or the end if there is none.
    """
    return bounds_of_topics(admin, {topic: numbers}, level, seconds, since=since)[topic]


def bounds_of_topics(
    admin: AdminClient,
    topics: Mapping[str, Collection[int]],
    level: IsolationLevel = READ_COMMITTED,
    seconds: float = REQUEST_S,
    *,
    since: float | None = None,
) -> dict[str, dict[int, Bounds]]:
    """Return, for the partition numbers of each topic, what `bounds` returns."""
    start = EARLIEST if since is None else OffsetSpec.for_timestamp(max(0, int(since * 1000)))
    first, end = (_offsets_of_topics(admin, topics, spec, level, seconds) for spec in (start, LATEST))

    def bounds_of(place: tuple[str, int]) -> Bounds:
        return Bounds(first[place] if first[place] >= 0 else end[place], end[place])

    return {topic: {number: bounds_of((topic, number)) for number in numbers} for topic, numbers in topics.items()}


def offsets(
    admin: AdminClient,
    topic: str,
    numbers: Collection[int],
    spec: OffsetSpec,
    level: IsolationLevel = READ_COMMITTED,
    seconds: float = REQUEST_S,
) -> dict[int, int]:
    """Return a mapping from partition numbers to the offsets that `spec` selects."""
    selected = _offsets_of_topics(admin, {topic: numbers}, spec, level, seconds)
    return {number: selected[topic, number] for number in numbers}


def _offsets_of_topics(
    admin: AdminClient, topics: Mapping[str, Collection[int]], spec: OffsetSpec, level: IsolationLevel, seconds: float
) -> dict[tuple[str, int], int]:
    places = {TopicPartition(topic, number): spec for topic, numbers in topics.items() for number in numbers}

    def request() -> dict[tuple[str, int], int]:
        futures = admin.list_offsets(places, isolation_level=level, request_timeout=seconds) if places else {}
        return {(place.topic, place.partition): future.result(seconds + 5).offset for place, future in futures.items()}

    def refresh() -> None:
        """Read the leaders again. Otherwise the client repeats the request with the leader epoch that it knows."""
        for topic in topics:
            with suppress(KafkaException):
                admin.list_topics(topic, timeout=seconds)

    return _repeat_without_leader(request, seconds, refresh)


def configs(
    admin: AdminClient, names: Collection[str], kind: ResourceType = ResourceType.TOPIC, *, seconds: float = REQUEST_S
) -> dict[str, dict[str, str]]:
    """Return a mapping from topic or broker names to effective settings. Settings with a null value are omitted."""
    resources = [ConfigResource(kind, name) for name in names]
    futures = admin.describe_configs(resources, request_timeout=seconds) if resources else {}
    return {
        resource.name: {
            key: entry.value for key, entry in future.result(seconds + 5).items() if entry.value is not None
        }
        for resource, future in futures.items()
    }


def _repeat_without_leader(request: Callable[[], T], seconds: float, refresh: Callable[[], object] = lambda: None) -> T:
    """Return the result of a request. While a partition has no leader, `refresh` and repeat it for up to `seconds`."""
    end = time.monotonic() + seconds
    while True:
        try:
            return request()
        except KafkaException as error:
            if error.args[0].code() not in NO_LEADER or time.monotonic() >= end:
                raise
            time.sleep(RETRY_S)
            refresh()


def kafka_error(error: KafkaException) -> KafkaError:
    """Return the KafkaError that an exception contains."""
    cause = error.args[0]
    assert isinstance(cause, KafkaError)  # noqa: S101 - for the type checker
    return cause
