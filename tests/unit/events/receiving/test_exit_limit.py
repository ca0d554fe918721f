"""The process ends if a receiver does not stop in time, but not if it stops or runs in another thread."""

from __future__ import annotations

import subprocess
import sys

import pytest

from outbox_events.receiving.exit_limit import EXIT_CODE

PROGRAM = """
import threading
from outbox_events.receiving.exit_limit import exit_limit

def run(stop, hang_s):
    with exit_limit(stop, 0.2):
        {stop}
        threading.Event().wait(hang_s)

{start}
"""


BUFFERED = """
import logging, logging.handlers, sys, threading
from outbox_events.receiving import exit_limit

stream = logging.StreamHandler()
logging.basicConfig(handlers=[{handler}])
exit_limit.REPORT_S = {report_s}
stop = threading.Event()
with exit_limit.exit_limit(stop, 0.2):
    stop.set()
    {hang}
"""


def run_program(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)


def test_buffered_log_records_are_written() -> None:
    handler = "logging.handlers.MemoryHandler(100, flushLevel=100, target=stream)"
    ended = run_program(BUFFERED.format(handler=handler, report_s=5, hang="threading.Event().wait(60)"))
    assert (ended.returncode, "did not stop" in ended.stderr) == (EXIT_CODE, True)


def test_a_handler_of_logging_that_hangs_does_not_keep_the_process() -> None:
    hang = "with stream.lock: threading.Event().wait(60)"
    assert run_program(BUFFERED.format(handler="stream", report_s=0.2, hang=hang)).returncode == EXIT_CODE


@pytest.mark.parametrize(
    ("stop", "start", "code"),
    [
        ("stop.set()", "run(threading.Event(), 60)", EXIT_CODE),
        ("stop.set()", "run(threading.Event(), 0)", 0),
        ("pass", "run(threading.Event(), 0.5)", 0),
        ("stop.set()", "threading.Thread(target=run, args=[threading.Event(), 0.5]).start()", 0),
    ],
)
def test_exit_code(stop: str, start: str, code: int) -> None:
    ended = run_program(PROGRAM.format(stop=stop, start=start))
    assert ended.returncode == code, ended.stderr
    assert ("in run" in ended.stderr) == (code == EXIT_CODE)
