"""Records that retention removed before they were received, for the strategies that use committed offsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from tests.integration.receiving.service import SECONDS, Service, run_until

from outbox_events import (
    Event,
    KafkaTransactions,
    ProcessedEvents,
    Retries,
    Strategy,
    WithoutDeduplication,
)
from outbox_events.errors import ConfigurationError, RefusedError, RejectedError

STRATEGIES: dict[str, Callable[[Service], Strategy[Any]]] = {
    "table": lambda service: ProcessedEvents(service.connect),
    "none": lambda service: WithoutDeduplication(service.connect),
    "kafka": lambda service: KafkaTransactions(
        {"bootstrap.servers": service.bootstrap, "transactional.id": service.group}
    ),
}


def delete_before(admin: AdminClient, topic: str, offset: int) -> None:
    place = TopicPartition(topic, 1, offset)
    admin.delete_records([place])[place].result(SECONDS)


@pytest.mark.parametrize("name", STRATEGIES)
def test_deleted_records_are_refused_at_the_start(service: Service, admin: AdminClient, name: str) -> None:
    handled: list[str] = []
    service.handlers.otherwise(lambda event, _: handled.append(event.event_id))
    service.send(*(("a", str(number)) for number in range(3)), partition=1)
    strategy = STRATEGIES[name](service)
    with service.receiver(strategy) as receiver:
        run_until(receiver, "three events", lambda: len(handled) == 3)
        with pytest.raises(ConfigurationError, match="another receiver"):
            service.receiver(strategy)
    service.send(*(("a", str(number)) for number in range(3, 8)), partition=1)
    delete_before(admin, service.topic, 5)
    message = f"topic {service.topic}, partition 1: the committed offset [34] of {service.group} is before .* 5:"
    with service.receiver(strategy) as receiver:
        for _ in range(2):
            with pytest.raises(RefusedError, match=message) as raised:
                run_until(receiver, "never", lambda: False)
        assert f"--group {service.group} --topic {service.topic}:1" in raised.value.hint
        assert "--to-offset 5 " in raised.value.hint
    assert len(handled) == 3


def test_records_that_are_deleted_while_the_receiver_runs_are_refused(service: Service, admin: AdminClient) -> None:
    handled: list[str] = []

    @service.handlers.otherwise
    def delete(event: Event, _: psycopg.Connection) -> None:
        if event.event_id == "1":
            delete_before(admin, service.topic, 3)
            raise ValueError(event.event_id)
        handled.append(event.event_id)

    service.send(*(("a", str(number)) for number in range(5)), partition=1)
    options = {"retries": Retries(attempts=9, first_delay_s=0.01), "batch_size": 1}
    with (
        service.receiver(ProcessedEvents(service.connect), **options) as receiver,
        pytest.raises(RejectedError, match="out of range"),
    ):
        run_until(receiver, "never", lambda: False)
    assert handled == ["0"]


@pytest.mark.parametrize(("reset", "old"), [("earliest", ["2", "3"]), ("latest", [])])
def test_a_new_group_starts_at_the_first_or_last_record(
    service: Service, admin: AdminClient, reset: str, old: list[str]
) -> None:
    handled: list[str] = []
    service.handlers.otherwise(lambda event, _: handled.append(event.event_id))
    service.send(*(("a", str(number)) for number in range(4)), partition=1)
    delete_before(admin, service.topic, 2)

    def has_new() -> bool:
        service.send(("a", "new"), partition=1)  # until the client has found the end of the partition
        return "new" in handled

    with service.receiver(ProcessedEvents(service.connect), settings={"auto.offset.reset": reset}) as receiver:
        run_until(receiver, "a new event", has_new)
    assert handled == [*old, "new"]
