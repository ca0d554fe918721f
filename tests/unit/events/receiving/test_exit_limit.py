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
    command = [sys.executable, "-c", PROGRAM.format(stop=stop, start=start)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == code, ended.stderr
    assert ("in run" in ended.stderr) == (code == EXIT_CODE)
