"""Test calls of the Kafka client that have a time limit."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextvars import ContextVar

import pytest

from outbox_events import limited_calls

TRACE: ContextVar[str] = ContextVar("TRACE")


def test_returns_the_result() -> None:
    TRACE.set("t-1")
    assert limited_calls.call("commit", TRACE.get, seconds=5) == "t-1"


@pytest.mark.parametrize("error", [KeyError("k"), TimeoutError("own"), KeyboardInterrupt()])
def test_raises_the_exception(error: BaseException) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        limited_calls.call("commit", fail, seconds=5)
    assert raised.value is error


def test_stuck_call() -> None:
    released = threading.Event()
    with pytest.raises(limited_calls.ClientStuckError, match=r"did not leave the group within 0\.05 s"):
        limited_calls.call("leave the group", released.wait, seconds=0.05)
    released.set()


def test_signal_handlers_run_during_the_call() -> None:
    released = threading.Event()
    previous = signal.signal(signal.SIGUSR1, lambda *_: released.set())
    try:
        threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGUSR1]).start()
        started = time.monotonic()
        assert limited_calls.call("poll", lambda: released.wait(30), seconds=60)
        assert time.monotonic() - started < 30
    finally:
        signal.signal(signal.SIGUSR1, previous)


@pytest.mark.parametrize("main_is_alive", [True, False])
def test_a_thread_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch, main_is_alive: bool) -> None:
    """After the main thread has ended, `function` runs in the calling thread. Before, the error is raised."""

    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    monkeypatch.setattr(threading.main_thread(), "is_alive", lambda: main_is_alive)
    if main_is_alive:
        with pytest.raises(RuntimeError, match="can't start"):
            limited_calls.start(lambda: 1)
    else:
        assert limited_calls.call("add", lambda: 1, seconds=1) == 1
