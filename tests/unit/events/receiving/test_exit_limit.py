"""The process ends if a receiver does not stop in time, but not if it stops, or has no limit in another thread."""

from __future__ import annotations

import subprocess
import sys

import pytest

from outbox_events.receiving.exit_limit import EXIT_CODE

STARTS_NO_THREAD = pytest.mark.skipif(
    (3, 12) <= sys.version_info < (3, 12, 3),
    reason="Python 3.12.0 to 3.12.2 start no thread after the main thread has ended (gh-113964)",
)
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


BUFFERED = """
import logging, logging.handlers, sys, threading
from outbox_events.receiving import exit_limit

stream = logging.StreamHandler()
logging.basicConfig(handlers=[{handler}])
exit_limit.REPORT_S = {report_s}
stop = threading.Event()
with exit_limit.exit_limit(stop, 0.2, str):
    stop.set()
    {hang}
"""


def run_program(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)


def test_buffered_log_records_are_written() -> None:
    handler = "logging.handlers.MemoryHandler(100, flushLevel=100, target=stream)"
    ended = run_program(BUFFERED.format(handler=handler, report_s=5, hang="threading.Event().wait(60)"))
    assert (ended.returncode, "did not stop" in ended.stderr) == (EXIT_CODE, True)


@pytest.mark.parametrize("in_thread", [False, pytest.param(True, marks=STARTS_NO_THREAD)])
def test_a_handler_of_logging_that_hangs_does_not_keep_the_process(in_thread: bool) -> None:
    program = BUFFERED.format(handler="stream", report_s=0.2, hang="with stream.lock: threading.Event().wait(60)")
    if in_thread:  # the main thread ends at once
        program = f"import threading\nthreading.Thread(target=exec, args=[{program!r}, {{}}]).start()"
    assert run_program(program).returncode == EXIT_CODE


@pytest.mark.parametrize(
    ("start", "code"),
    [
        ("run(0.2)", EXIT_CODE),
        ("run(0.2, kind='async')", EXIT_CODE),
        ("run(0.2, hang_s=0)", 0),
        ("run(0.2, hang_s=0.5, stop_early=False)", 0),
        ("run()", EXIT_CODE),
        pytest.param("threading.Thread(target=run, args=[0.2]).start()", EXIT_CODE, marks=STARTS_NO_THREAD),
        ("threading.Thread(target=run, args=[None, 0.5]).start()", 0),
    ],
)
def test_exit_code(start: str, code: int) -> None:
    ended = run_program(PROGRAM + start)
    assert ended.returncode == code, ended.stderr
    place = "in hang_in_coroutine\n" if "async" in start else "in hang\n"
    assert (place in ended.stderr) == (code == EXIT_CODE), ended.stderr
