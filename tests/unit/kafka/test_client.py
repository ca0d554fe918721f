"""Kafka client and reader: errors, ends of partitions, execution of changes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, TopicPartition

from outbox_kit.errors import ConfigurationError, RejectedError, UnreachableError
from outbox_kit.kafka import client as kafka_client
from outbox_kit.kafka import topic_reader
from outbox_kit.kafka.apply import apply
from outbox_kit.kafka.client import KafkaClient, client_settings
from outbox_kit.kafka.state import desired_topics, diff
from outbox_kit.pipeline import Environment, Kafka, Pipeline


@pytest.fixture
def unreachable(free_port: int, monkeypatch: pytest.MonkeyPatch) -> Kafka:
    monkeypatch.setattr(kafka_client, "REQUEST_TIMEOUT_S", 0.3)
    monkeypatch.setattr(topic_reader, "REQUEST_TIMEOUT_S", 0.3)
    return Kafka(bootstrap_servers=f"127.0.0.1:{free_port}")


def test_settings_of_the_environment_take_precedence() -> None:
    kafka = Kafka(bootstrap_servers="a:1,b:2", client={"security.protocol": "SSL", "log_level": "3"})
    settings = client_settings(kafka)
    assert settings["bootstrap.servers"] == "a:1,b:2"
    assert settings["security.protocol"] == "SSL"
    assert settings["log_level"] == "3"


@pytest.mark.parametrize(
    "call",
    [lambda client: client.topics(), lambda client: client.describe(["a"]), lambda client: client.cluster_id()],
    ids=["topics", "describe", "cluster id"],
)
def test_reports_an_unreachable_cluster(unreachable: Kafka, call: Callable[[KafkaClient], object]) -> None:
    with pytest.raises(UnreachableError) as caught:
        call(KafkaClient(unreachable))
    assert caught.value.message.startswith(f"cannot reach Kafka at {unreachable.bootstrap_servers}: ")
    assert "kafka.bootstrap_servers" in caught.value.hint


def test_reader_error_names_the_topic(unreachable: Kafka) -> None:
    with (
        pytest.raises(UnreachableError, match=r"cannot read topic library\.book"),
        topic_reader.reader_at_end(unreachable, "library.book"),
    ):
        pass


class _Message:
    """Message as the consumer's poll() returns it."""

    def __init__(self, partition: int = 0, error: int | None = None, topic: str = "t") -> None:
        self._topic = topic
        self._partition = partition
        self._error = None if error is None else KafkaError(error)

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return self._partition

    def error(self) -> KafkaError | None:
        return self._error


class _Consumer:
    """Consumer with scripted results of poll(), then None."""

    def __init__(self, polled: list[_Message | None]) -> None:
        self.polled = polled
        self.assigned: list[TopicPartition] = []
        self.paused: list[tuple[str, int]] = []
        self.closed = False

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.assigned = partitions

    def pause(self, partitions: list[TopicPartition]) -> None:
        self.paused += [(entry.topic, entry.partition) for entry in partitions]

    def poll(self, _: float) -> _Message | None:
        return self.polled.pop(0) if self.polled else None

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def consumer_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[_Message | None]], _Consumer]:
    def create(polled: list[_Message | None]) -> _Consumer:
        consumer = _Consumer(polled)
        monkeypatch.setattr(topic_reader, "Consumer", lambda _: consumer)
        return consumer

    return create


END = KafkaError._PARTITION_EOF


def test_reads_a_topic_to_the_end_of_every_partition(
    consumer_of: Callable[[list[_Message | None]], _Consumer], unreachable: Kafka
) -> None:
    first, second, third = _Message(0), _Message(1), _Message(1)
    consumer = consumer_of(
        [
            None,
            first,
            _Message(0, END),
            second,
            None,
            _Message(0, END),
            third,
            _Message(1, END),
            _Message(1),
        ]
    )
    actual: list[object] = []
    topic_reader.read_records(unreachable, "t", {0: 0, 1: 0}, actual.append)
    assert actual == [first, second, third]
    assert sorted((entry.partition, entry.offset) for entry in consumer.assigned) == [(0, 0), (1, 0)]
    assert len(consumer.polled) == 1
    assert consumer.closed


def test_stops_reading_at_the_limit(
    consumer_of: Callable[[list[_Message | None]], _Consumer], unreachable: Kafka
) -> None:
    consumer = consumer_of([_Message(0), _Message(0), _Message(0)])
    records: list[object] = []
    topic_reader.read_records(unreachable, "t", {0: 0}, records.append, limit=2)
    assert (len(records), len(consumer.polled)) == (2, 1)


def test_reads_the_first_records_of_several_topics(
    consumer_of: Callable[[list[_Message | None]], _Consumer], unreachable: Kafka
) -> None:
    """A partition that has more records is paused. What the client has already received is ignored."""
    first, second, third = _Message(0), _Message(0), _Message(0, topic="u")
    polled = [first, third, None, second, _Message(0), _Message(0, END, topic="u"), _Message(0, topic="u")]
    consumer = consumer_of([*polled])
    starts = [TopicPartition("t", 0, 7), TopicPartition("u", 0, 0)]
    records: list[object] = []
    incomplete = topic_reader.read_first_records(unreachable, starts, records.append, limit=2, seconds=5)
    assert records == [first, third, second]
    assert incomplete == {("t", 0)}
    assert consumer.paused == [("t", 0)]
    assert len(consumer.polled) == 1
    assert consumer.closed


@pytest.mark.parametrize(
    "code",
    [
        KafkaError._TRANSPORT,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.OFFSET_OUT_OF_RANGE,
    ],
)
def test_error_is_not_the_end_of_a_partition(
    consumer_of: Callable[[list[_Message | None]], _Consumer], unreachable: Kafka, code: int
) -> None:
    """Otherwise a topic that was read in part would be treated as complete."""
    consumer = consumer_of([_Message(0), _Message(0, code), _Message(0, END)])
    with pytest.raises(UnreachableError, match="cannot read topic t: "):
        topic_reader.read_records(unreachable, "t", {0: 0}, [].append)
    assert consumer.closed


def test_rejects_an_option_unknown_to_librdkafka() -> None:
    kafka = Kafka(bootstrap_servers="127.0.0.1:1", client={"security.protokol": "SSL"})
    with pytest.raises(ConfigurationError, match=r"security\.protokol"):
        KafkaClient(kafka)


def test_rejects_a_value_invalid_for_librdkafka() -> None:
    kafka = Kafka(bootstrap_servers="127.0.0.1:1", client={"security.protocol": "TLS"})
    with pytest.raises(ConfigurationError, match=r"security\.protocol"):
        KafkaClient(kafka)


class _Recorder(KafkaClient):
    """Client that records calls."""

    def __init__(self, topics: dict[str, tuple[int, int]] | None = None) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.existing = topics or {}

    def topics(self) -> dict[str, tuple[int, int]]:
        return self.existing

    def add_partitions(self, name: str, partitions: int) -> None:
        self.calls.append(("grow", name, partitions))

    def create(self, name: str, *, partitions: int, replication_factor: int, config: dict[str, str]) -> None:
        self.calls.append(("create", name, partitions, replication_factor, config))

    def set_config(self, name: str, config: dict[str, str]) -> None:
        self.calls.append(("set", name, config))


def test_apply_makes_the_changes_of_diff(library: Pipeline, environment: Environment) -> None:
    topics = desired_topics(library, environment)
    book = next(topic for topic in topics if topic.name == "library.book")
    changes = diff(topics, {"library.book": kafka_client.ActualTopic(2, 3, {})}, {})
    client, messages = _Recorder({"library.book": (2, 3)}), list[str]()
    apply(client, environment, topics, changes, messages.append)
    assert client.calls[0] == ("create", "library.author", 4, 3, topics[0].config)
    assert client.calls[1:3] == [("grow", "library.book", 4), ("set", "library.book", book.config)]
    assert len(client.calls) == len(topics) + 1
    assert messages[:2] == ["create topic library.author", "update topic library.book"]


def test_apply_stops_at_the_first_rejection(library: Pipeline, environment: Environment) -> None:
    class Rejecting(_Recorder):
        def create(self, name: str, **_: object) -> None:
            raise RejectedError(f"no {name}")

    topics = desired_topics(library, environment)
    messages: list[str] = []
    with pytest.raises(RejectedError, match=r"no library\.author"):
        apply(Rejecting(), environment, topics, diff(topics, {}, {}), messages.append)
    assert messages == ["create topic library.author"]
