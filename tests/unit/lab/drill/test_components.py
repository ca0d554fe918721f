"""Processes of the drill: signals."""

from __future__ import annotations

import subprocess
import sys

# A kernel can deliver a signal to any thread. Here, the main thread blocks the signal, so that another one receives it.
PROGRAM = """
import os, signal, threading
from outbox_lab.drill.components import flag_of_termination

stop = flag_of_termination()
worker = threading.Thread(target=stop.wait)
worker.start()
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
os.kill(os.getpid(), signal.SIGTERM)
worker.join()
"""


def test_a_process_ends_whichever_thread_receives_sigterm() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=30)
