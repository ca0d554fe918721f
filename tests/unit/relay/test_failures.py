"""Delays and limits of failing buckets."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from outbox_events.errors import RejectedError, UnreachableError
from outbox_kit.relay.failures import GIVE_UP_S, MAX_BACKOFF_S, Failures


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def failures(clock: Clock) -> Failures:
    return Failures(0.1, lambda _: None, clock)


def test_a_failing_bucket_waits_longer_after_each_error_and_the_others_do_not_wait(
    failures: Failures, clock: Clock
) -> None:
    delays = []
    for _ in range(10):
        failures.add(3, RejectedError("x"))
        assert failures.due([2, 3, 4]) == [2, 4]
        delays.append(failures.by_bucket[3].delay)
        clock.now += delays[-1]
        assert failures.due([2, 3, 4]) == [2, 3, 4]
    assert delays[:3] == [0.1, 0.2, 0.4]
    assert delays[-1] == MAX_BACKOFF_S
    failures.remove([3])
    failures.add(3, RejectedError("x"))
    assert failures.by_bucket[3].delay == 0.1


def test_forgets_the_failures_of_buckets_that_are_no_longer_held(failures: Failures) -> None:
    for bucket in (3, 4):
        failures.add(bucket, RejectedError("x"))
    failures.keep([4, 5])
    assert list(failures.by_bucket) == [4]
    failures.keep([])
    failures.raise_last()


def test_the_limit_is_reached_if_no_bucket_is_sent(failures: Failures, clock: Clock) -> None:
    failures.add(3, RejectedError("x"))
    clock.now += GIVE_UP_S - 1
    failures.remove([4])
    failures.add(3, UnreachableError("y"))
    clock.now += 1
    assert not failures.is_over_limit()
    assert failures.is_over_limit(each=True)
    with pytest.raises(UnreachableError):
        failures.raise_last()
    clock.now += GIVE_UP_S
    assert failures.is_over_limit()


def test_the_limit_begins_with_the_first_error_of_a_session(failures: Failures, clock: Clock) -> None:
    clock.now += 10 * GIVE_UP_S
    assert [failures.add_session(UnreachableError("x")) for _ in range(2)] == [0.1, 0.2]
    assert not failures.is_over_limit()
    clock.now += GIVE_UP_S
    assert failures.is_over_limit()
