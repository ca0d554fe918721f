"""Strategies that cannot accept or release partitions: when the receiver waits, and when it ends."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from confluent_kafka import TopicPartition
from tests.integration.receiving.service import Service, run_until

from outbox_events import ProcessedEvents, Retries

FAST = Retries(first_delay_s=0.05, jitter=0)
PROTOCOLS = {
    "eager": {},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
}


class Guarded(ProcessedEvents[psycopg.Connection]):
    """Strategy that requires a resource, which can be missing, at the start and end of an assignment."""

    def __init__(self, service: Service) -> None:
        super().__init__(service.connect)
        self.assign_error: Exception | None = None
        self.revoke_error: Exception | None = None
        self.attempts = 0

    def assigned(self, partitions: list[TopicPartition]) -> list[TopicPartition] | None:
        self.attempts += 1
        if self.assign_error is not None:
            raise self.assign_error
        return super().assigned(partitions)

    def revoked(self, partitions: list[TopicPartition]) -> None:
        if self.revoke_error is not None:
            raise self.revoke_error
        super().revoked(partitions)


@pytest.fixture
def strategy(service: Service) -> Guarded:
    service.handlers.otherwise(service.write_effect)
    service.send(*((f"k{n}", str(n)) for n in range(30)))
    return Guarded(service)


def applied(service: Service, count: int) -> bool:
    return len(service.effects()) >= count


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_waits_for_an_outage_within_the_group(service: Service, strategy: Guarded, protocol: str) -> None:
    strategy.assign_error = psycopg.OperationalError("the connection failed")
    options: dict[str, Any] = {"settings": PROTOCOLS[protocol], "retries": FAST}
    with service.receiver(strategy, **options) as first:
        run_until(first, "three attempts", lambda: strategy.attempts >= 3)
        assert first.consumer.memberid()
        with service.receiver(Guarded(service), **options) as second:

            def second_applies() -> bool:
                second.poll(0.1)
                return second.counters.handled > 0

            run_until(first, "a rebalance", second_applies)
            assert 0 < len(second.consumer.assignment()) < 3
            assert first.counters.received == 0
            assert first.consumer.assignment() == []
            strategy.assign_error = None

            def all_applied() -> bool:
                second.poll(0.1)
                return applied(service, 30)

            run_until(first, "30 effects", all_applied)
            assert first.counters.handled > 0
        service.send(*((f"k{n}", str(n)) for n in range(30, 60)))
        run_until(first, "60 effects", lambda: applied(service, 60))
    assert sorted(map(int, service.effects())) == list(range(60))


def test_another_error_ends_the_run_and_skips_nothing(service: Service, strategy: Guarded) -> None:
    strategy.assign_error = ValueError("broken")
    with service.receiver(strategy, retries=FAST) as receiver:
        for _ in range(2):
            with pytest.raises(ValueError, match="broken"):
                run_until(receiver, "never", lambda: False)
        assert receiver.counters.received == 0
        strategy.assign_error = None
        run_until(receiver, "30 effects", lambda: applied(service, 30))
    assert sorted(map(int, service.effects())) == list(range(30))


def test_an_error_of_a_revocation_is_raised(service: Service, strategy: Guarded) -> None:
    strategy.revoke_error = OSError("no space left")
    with service.receiver(strategy, retries=FAST) as first:
        run_until(first, "30 effects", lambda: applied(service, 30))
        with service.receiver(Guarded(service), retries=FAST) as second, pytest.raises(OSError, match="no space left"):
            run_until(first, "never", lambda: second.poll(0.1) < 0)
        strategy.revoke_error = None  # the second consumer, which leaves, can cause several rebalances
        run_until(first, "all partitions", lambda: len(first.consumer.assignment()) == 3)
        strategy.revoke_error = OSError("at the end")
        with pytest.raises(OSError, match="at the end"):
            first.close()
