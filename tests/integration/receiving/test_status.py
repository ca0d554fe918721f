"""The status of a receiver: liveness, readiness, and clients that no longer deliver records."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.integration.receiving.service import SECONDS, Service, run_until

from outbox_events import Event, ProcessedEvents, Receiver, ReceiverStatus, Retries
from outbox_events.receiving import status
from outbox_events.waiting import Observation, wait_for


@pytest.fixture(autouse=True)
def _check_at_each_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "CHECK_S", 0.05)


def wait_for_check(receiver: Receiver[Any], found: list[ReceiverStatus]) -> None:
    """Poll until a check of the ends begins after this call and completes."""
    found.append(receiver.status())
    checks = 0

    def is_checked() -> bool:
        nonlocal checks
        before, after = found[-1], receiver.status()
        found.append(after)
        if after.seconds_since_check is not None:
            checks += before.seconds_since_check is None or after.seconds_since_check < before.seconds_since_check
        return checks == 2

    run_until(receiver, "two checks of the ends", is_checked)


def test_a_receiver_without_unread_records_is_ready(service: Service) -> None:
    service.handlers.otherwise(service.write_effect)
    found: list[ReceiverStatus] = []
    with service.receiver(ProcessedEvents(service.connect)) as receiver:
        assert receiver.status().is_alive()
        assert not receiver.status().is_ready()
        run_until(receiver, "the assignment", lambda: receiver.status().is_ready())
        producer = Producer({"bootstrap.servers": service.bootstrap, "transactional.id": service.group})
        producer.init_transactions(SECONDS)
        for end in (producer.commit_transaction, producer.abort_transaction):
            producer.begin_transaction()
            headers: list[tuple[str, str | bytes | None]] = [("event_id", b"1")]
            producer.produce(service.topic, key="a", value="1", headers=headers, partition=0)
            producer.flush(SECONDS)
            end(SECONDS)
            run_until(receiver, "the event", lambda: receiver.counters.handled == 1)
            wait_for_check(receiver, found)
            run_until(receiver, "the end after the marker", lambda: not receiver.status().unread)
        last = receiver.status()
        assert last.assigned == {(service.topic, number) for number in range(3)}
        assert not last.paused
        assert last.seconds_since_poll < SECONDS
    assert not receiver.status().is_alive()


def test_a_client_that_delivers_nothing_from_a_partition_is_not_alive(service: Service) -> None:
    service.handlers.otherwise(service.write_effect)
    stalled = service.topic, 1
    found: list[ReceiverStatus] = []
    with service.receiver(ProcessedEvents(service.connect)) as receiver:
        service.send(("a", "1"), partition=1)
        run_until(receiver, "the event", lambda: receiver.counters.handled == 1)
        receiver.consumer.pause([TopicPartition(*stalled)])  # the receiver does not know that the client has stopped
        service.send(("a", "2"), ("a", "3"), partition=1)
        service.send(("b", "4"), partition=2)
        wait_for_check(receiver, found)
        run_until(receiver, "the stalled partition", lambda: not receiver.status().is_alive(0.2))
        last = receiver.status()
        assert (last.unread, last.stalled.keys()) == ({stalled: 2}, {stalled})
        assert last.is_alive()
        receiver.consumer.resume([TopicPartition(*stalled)])
        run_until(receiver, "all events", lambda: receiver.counters.handled == 4)
        run_until(receiver, "progress", lambda: not receiver.status().stalled)


def test_a_receiver_that_the_group_does_not_admit_is_not_alive(service: Service) -> None:
    """The group waits for a member that does not poll. The brokers respond, so this is not an outage."""
    other = Consumer({"bootstrap.servers": service.bootstrap, "group.id": service.group})
    assigned: list[TopicPartition] = []
    other.subscribe([service.topic], on_assign=lambda _, partitions: assigned.extend(partitions))
    wait_for("the other member", lambda: Observation(bool(other.poll(0.1) or assigned) or None, ""), seconds=SECONDS)
    with service.receiver(ProcessedEvents(service.connect)) as receiver:
        run_until(receiver, "the time limit", lambda: not receiver.status().is_alive(0.2))
        assert receiver.status().is_alive()
        other.close()
        run_until(receiver, "the assignment", lambda: receiver.status().is_ready(0.2))
        assert receiver.status().seconds_unjoined == 0


def test_a_partition_that_waits_for_a_retry_is_not_stalled(service: Service) -> None:
    @service.handlers.otherwise
    def fail(event: Event, _: object) -> None:
        raise ValueError(event.event_id)

    found: list[ReceiverStatus] = []
    service.send(("a", "1"), partition=0)
    late = Retries(attempts=9, first_delay_s=3600, jitter=0)
    with service.receiver(ProcessedEvents(service.connect), retries=late) as receiver:
        run_until(receiver, "the failure", lambda: receiver.counters.retries == 1)
        wait_for_check(receiver, found)
        wait_for_check(receiver, found)
        assert receiver.status().paused == {(service.topic, 0)}
        assert not receiver.status().stalled
