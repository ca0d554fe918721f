"""Kafka client: errors, and execution of changes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from outbox_events.errors import ConfigurationError, RejectedError, UnreachableError
from outbox_kit.kafka import client as kafka_client
from outbox_kit.kafka.apply import apply
from outbox_kit.kafka.client import KafkaClient, client_settings
from outbox_kit.kafka.state import desired_topics, diff
from outbox_kit.pipeline import Environment, Kafka, Pipeline


@pytest.fixture
def unreachable(free_port: int, monkeypatch: pytest.MonkeyPatch) -> Kafka:
    monkeypatch.setattr(kafka_client, "REQUEST_TIMEOUT_S", 0.3)
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
    apply(client, topics, changes, messages.append)
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
        apply(Rejecting(), topics, diff(topics, {}, {}), messages.append)
    assert messages == ["create topic library.author"]
