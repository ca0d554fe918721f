"""Bloom filters alone, and in front of the table of processed events."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka.admin import AdminClient
from tests.integration.receiving.service import Service, run_until
from tests.integration.receiving.strategies.crashes import (
    CrashError,
    committed,
    crash,
    crashing,
    create_again,
    events,
    handled_ids,
)

from outbox_events import BloomFilter, Event, ProcessedEvents, Receiver, Retries, recoverers
from outbox_events.errors import ConfigurationError, RefusedError


@pytest.fixture
def handled(service: Service) -> list[Event]:
    """Return the handled events. The handler does not use a database."""
    found: list[Event] = []
    service.handlers.otherwise(lambda event, _: found.append(event))
    return found


def alone(folder: Path, **options: Any) -> BloomFilter[None]:  # noqa: ANN401
    return BloomFilter(folder, **{"capacity": 10_000, **options})


def with_table(service: Service, folder: Path, **options: Any) -> BloomFilter[psycopg.Connection]:  # noqa: ANN401
    table = ProcessedEvents(service.connect, service.group)
    return BloomFilter(folder, behind=table, **{"capacity": 10_000, **options})


def receive(receiver: Receiver[Any], count: int) -> None:
    run_until(receiver, f"{count} events", lambda: receiver.counters.received >= count)


def test_recognizes_duplicates_after_a_restart(service: Service, tmp_path: Path, handled: list[Event]) -> None:
    service.send(*events(0, 100), *events(0, 20))
    with service.receiver(alone(tmp_path)) as receiver:
        receive(receiver, 120)
        assert receiver.counters.duplicates == 20
    service.send(*events(50, 150))
    with service.receiver(alone(tmp_path)) as receiver:
        receive(receiver, 100)
        assert (receiver.counters.received, receiver.counters.duplicates) == (100, 50)
    assert handled_ids(handled) == list(range(150))


def test_handlers_get_the_transaction_of_connect(service: Service, tmp_path: Path) -> None:
    service.handlers.otherwise(service.write_effect)
    service.send(*events(0, 30))
    strategy = alone(tmp_path, connect=service.connect)
    with crashing(service, strategy, batch_size=5) as receiver:
        crash(receiver)
    with service.receiver(alone(tmp_path, connect=service.connect)) as receiver:
        run_until(receiver, "30 effects", lambda: len(service.effects()) >= 30)
    assert sorted(map(int, service.effects())) == list(range(30))


def test_after_a_crash_events_since_the_save_complete_the_filter(
    service: Service, tmp_path: Path, handled: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    service.send(*events(0, 10))
    with service.receiver(alone(tmp_path)) as receiver:
        receive(receiver, 10)
    service.send(*events(10, 30))
    strategy = alone(tmp_path)
    with service.receiver(strategy) as receiver:
        receive(receiver, 20)
        run_until(receiver, "the group's commit", lambda: sum(committed(receiver).values()) == 30)
        monkeypatch.setattr(strategy.filters, "save", lambda _: None)  # the process ends without a save
    service.send(*events(10, 40))
    with service.receiver(alone(tmp_path)) as receiver:
        receive(receiver, 50)
        # 20 events that the group had handled after the save, and the same ids in new records
        assert receiver.counters.duplicates == 40
    assert handled_ids(handled) == list(range(40))


def test_a_crash_while_the_filter_is_completed_repeats_nothing(
    service: Service, tmp_path: Path, handled: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    service.send(*events(0, 10), partition=0)
    with service.receiver(alone(tmp_path)) as receiver:
        receive(receiver, 10)
    service.send(*events(10, 30), partition=0)
    for count in (20, 5):  # the second process has added 5 of 20 events to the filter
        strategy = alone(tmp_path)
        with service.receiver(strategy, batch_size=5) as receiver:
            receive(receiver, count)
            monkeypatch.setattr(strategy.filters, "save", lambda _: None)  # the process ends without a save
    with service.receiver(alone(tmp_path)) as receiver:
        receive(receiver, 20)
        assert receiver.counters.duplicates == 20
        run_until(receiver, "the group's commit", lambda: committed(receiver) == {0: 30})
    assert handled_ids(handled) == list(range(30))


def test_a_dead_letter_can_be_replayed_after_a_crash(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled: list[str] = []

    @service.handlers.otherwise
    def fail_once(event: Event, _: object) -> None:
        handled.append(event.event_id)
        if handled.count(event.event_id) == 1 and event.event_id == "3":
            raise ValueError("broken")

    options: dict[str, Any] = {"retries": Retries(attempts=1), "recoverer": recoverers.log_and_continue}
    service.send(*events(0, 2), partition=0)
    with service.receiver(alone(tmp_path)) as receiver:
        receive(receiver, 2)
    service.send(*events(2, 5), partition=0)
    strategy = alone(tmp_path)
    with service.receiver(strategy, batch_size=1, **options) as receiver:
        run_until(receiver, "the group's commit", lambda: committed(receiver) == {0: 5})
        monkeypatch.setattr(strategy.filters, "save", lambda _: None)  # the process ends without a save
    service.send(("a", "3"), partition=0)
    with service.receiver(alone(tmp_path)) as receiver:
        run_until(receiver, "the replay", lambda: handled.count("3") == 2)
    assert sorted(handled) == ["0", "1", "2", "3", "3", "4"]


def test_events_after_the_last_commit_are_applied_at_least_once(
    service: Service, tmp_path: Path, handled: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    service.send(*events(0, 10))
    strategy = alone(tmp_path)
    with crashing(service, strategy, batch_size=1) as receiver:
        crash(receiver)
        monkeypatch.setattr(strategy.filters, "save", lambda _: None)
    with service.receiver(alone(tmp_path)) as receiver:
        receive(receiver, 10)
    assert sorted(Counter(event.event_id for event in handled).values()) == [1] * 9 + [2]


def test_saves_at_its_interval(service: Service, tmp_path: Path, handled: list[Event]) -> None:
    service.send(*events(0, 10))
    with crashing(service, alone(tmp_path, save_interval_s=0), batch_size=100) as receiver:
        with pytest.raises(CrashError):
            receive(receiver, 10)
        assert list(tmp_path.glob("*.bloom"))
        assert not list(tmp_path.glob("*.partial"))
    assert handled


def test_a_rebalance_moves_filters_through_the_folder(service: Service, tmp_path: Path, handled: list[Event]) -> None:
    for partition in range(3):
        service.send(*events(50 * partition, 50 * partition + 40), partition=partition)
    first = service.receiver(alone(tmp_path))
    receive(first, 120)
    second = service.receiver(alone(tmp_path))

    def both_assigned() -> bool:
        second.poll(0.1)
        return bool(first.consumer.assignment()) and bool(second.consumer.assignment())

    run_until(first, "the rebalance", both_assigned)
    for partition in range(3):
        service.send(*events(50 * partition, 50 * partition + 50), partition=partition)

    def all_received() -> bool:
        second.poll(0.1)
        return first.counters.received + second.counters.received >= 270

    run_until(first, "the repeated events", all_received)
    assert second.counters.duplicates >= 40
    first.close()
    second.close()
    assert handled_ids(handled) == list(range(150))


def test_the_filter_of_a_recreated_topic_is_discarded(
    service: Service, admin: AdminClient, tmp_path: Path, handled: list[Event], caplog: pytest.LogCaptureFixture
) -> None:
    service.send(*events(0, 10))
    with service.receiver(alone(tmp_path)) as receiver:
        receive(receiver, 10)
    create_again(admin, service.topic)
    service.send(*events(0, 20))
    with caplog.at_level(logging.WARNING), service.receiver(alone(tmp_path)) as receiver:
        receive(receiver, 20)
    assert len(handled) == 30
    assert "the topic was created again" in caplog.text


def test_a_refused_filter_stops_the_receiver(service: Service, tmp_path: Path, handled: list[Event]) -> None:
    service.send(*events(0, 10))
    with service.receiver(alone(tmp_path)) as receiver:
        receive(receiver, 10)
    for path in tmp_path.iterdir():
        path.write_bytes(b"damaged")
    service.send(*events(5, 20))
    with service.receiver(alone(tmp_path, missing="refuse")) as receiver:
        with pytest.raises(RefusedError, match="its checksum is wrong"):
            receive(receiver, 1)
        with pytest.raises(RefusedError):
            receive(receiver, 100)
    assert handled_ids(handled) == list(range(10))


def test_alone_false_positives_are_lost_and_counted(service: Service, tmp_path: Path, handled: list[Event]) -> None:
    service.send(*events(0, 600))
    with service.receiver(alone(tmp_path, capacity=50, error_rate=0.5)) as receiver:
        receive(receiver, 600)
        assert receiver.counters.duplicates == 600 - len(handled) > 0


def test_with_a_table_nothing_is_lost_at_any_error_rate(service: Service, tmp_path: Path) -> None:
    service.handlers.otherwise(service.write_effect)
    service.send(*events(0, 600))
    options = {"capacity": 50, "error_rate": 0.5}
    with crashing(service, with_table(service, tmp_path, **options), batch_size=20) as receiver:
        crash(receiver)
    with service.receiver(with_table(service, tmp_path, **options)) as receiver:
        receive(receiver, 600)
        assert receiver.counters.duplicates > 0  # of the batch before the crash
        service.send(*events(300, 700))
        run_until(receiver, "700 effects", lambda: len(service.effects()) >= 700)
        receive(receiver, 1000)
    assert sorted(map(int, service.effects())) == list(range(700))


def test_a_zombie_with_a_table_applies_nothing_twice(service: Service, tmp_path: Path) -> None:
    service.handlers.otherwise(service.write_effect)
    receivers = [
        service.receiver(
            with_table(service, tmp_path / name), settings={"group.id": f"{service.group}-{name}"}, batch_size=5
        )
        for name in ("owner", "zombie")
    ]
    service.send(*events(0, 60), *events(0, 60))

    def all_received() -> bool:
        receivers[1].poll(0.1)
        return all(receiver.counters.received >= 120 for receiver in receivers)

    run_until(receivers[0], "all events by both", all_received)
    for receiver in receivers:
        receiver.close()
    assert sorted(map(int, service.effects())) == list(range(60))


@pytest.mark.parametrize("options", [{"capacity": 0}, {"error_rate": 0.0}, {"error_rate": 1.0}, {"behind": "connect"}])
def test_refuses_contradicting_arguments(service: Service, tmp_path: Path, options: dict[str, Any]) -> None:
    if "behind" in options:
        options = {"behind": ProcessedEvents(service.connect), "connect": service.connect}
    with pytest.raises(ConfigurationError):
        BloomFilter(tmp_path, **options)
