"""wait_for: time limit, and an error with the condition and the last status."""

from __future__ import annotations

import time

import pytest

from outbox_events.errors import RejectedError, WaitTimeoutError
from outbox_events.waiting import Observation, wait_for


def test_returns_an_existing_result_immediately() -> None:
    started = time.monotonic()
    assert wait_for("a condition", lambda: Observation("value", "available"), seconds=30, interval=10) == "value"
    assert time.monotonic() - started < 1


@pytest.mark.parametrize("value", [0, "", False, ()])
def test_falsy_value_is_a_result(value: object) -> None:
    assert wait_for("a condition", lambda: Observation(value, "there"), seconds=0.1) == value


def test_polls_until_there_is_a_result() -> None:
    polls = iter([Observation(None, "1 of 3"), Observation(None, "2 of 3"), Observation(3, "3 of 3")])
    assert wait_for("three", lambda: next(polls), seconds=5, interval=0.001) == 3


def test_timeout_reports_the_condition_and_last_status() -> None:
    messages = iter(f"poll {number}" for number in range(1000))
    with pytest.raises(WaitTimeoutError) as caught:
        wait_for(
            "the topic to appear",
            lambda: Observation[int](None, next(messages)),
            seconds=0.05,
            interval=0.01,
            hint="create it",
        )
    assert caught.value.message.startswith("waited 0.05 s for the topic to appear; last seen: poll ")
    assert not caught.value.message.endswith("poll 0")
    assert caught.value.hint == "create it"


def test_timeout_is_bounded() -> None:
    started = time.monotonic()
    with pytest.raises(WaitTimeoutError):
        wait_for("nothing", lambda: Observation[int](None, "nothing"), seconds=0.1, interval=0.02)
    assert time.monotonic() - started < 1


@pytest.mark.parametrize("error", [RejectedError("rejected"), ZeroDivisionError("unexpected")])
def test_propagates_errors_of_the_poll(error: Exception) -> None:
    polls = 0

    def poll() -> Observation[int]:
        nonlocal polls
        polls += 1
        raise error

    with pytest.raises(type(error)) as caught:
        wait_for("a condition", poll, seconds=5)
    assert caught.value is error
    assert polls == 1
