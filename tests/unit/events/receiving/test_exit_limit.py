"""The process ends if a receiver does not stop in time, but not if it stops, or has no limit in another thread."""

from __future__ import annotations

import subprocess
import sys

import pytest

from outbox_events.receiving.exit_limit import EXIT_CODE

PROGRAM = """
import asyncio
import threading
from outbox_events import Handlers
from outbox_events.receiving import receiver as receivers
from outbox_events.testing import InMemory, TestReceiver, event

def run(exit_s=None, hang_s=60, stop_early=True, kind="sync"):
    stop, handlers = threading.Event(), Handlers[None]()

    @handlers.on("sync")
    def hang(*_):
        if stop_early:
            stop.set()
        threading.Event().wait(hang_s)
        stop.set()

    @handlers.on("async")
    async def hang_in_coroutine(*_):
        await asyncio.to_thread(hang)

    with TestReceiver(InMemory(None), handlers) as receiver:
        receiver.receiver.consumer.append(event(kind))
        receiver.receiver.run(stop, exit_s=exit_s)

receivers.max_poll_interval_ms = lambda _: 200
"""


@pytest.mark.parametrize(
    ("start", "code"),
    [
        ("run(0.2)", EXIT_CODE),
        ("run(0.2, kind='async')", EXIT_CODE),
        ("run(0.2, hang_s=0)", 0),
        ("run(0.2, hang_s=0.5, stop_early=False)", 0),
        ("run()", EXIT_CODE),
        ("threading.Thread(target=run, args=[0.2]).start()", EXIT_CODE),
        ("threading.Thread(target=run, args=[None, 0.5]).start()", 0),
    ],
)
def test_exit_code(start: str, code: int) -> None:
    command = [sys.executable, "-c", PROGRAM + start]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == code, ended.stderr
    place = "in hang_in_coroutine\n" if "async" in start else "in hang\n"
    assert (place in ended.stderr) == (code == EXIT_CODE), ended.stderr
