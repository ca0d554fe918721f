"""WireMock server in a separate process, which is the HTTP service that handlers call."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from outbox_events.waiting import Observation, wait_for
from outbox_kit.stack.services.java import find_java

JAR = Path(__file__).resolve().parents[4] / "build" / "wiremock" / "wiremock-standalone.jar"
JVM_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m")
PORT = re.compile(r"^port: +(\d+)$", re.MULTILINE)
THREADS = 64
"""A delayed answer occupies a thread, and the cases of the matrix run at the same time."""
SECONDS = 60


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """Start WireMock on a free port of the loopback interface, yield its URL, and end it."""
    if not JAR.is_file():
        pytest.fail("no WireMock: run `make wiremock`")
    options = ["--port", "0", "--bind-address", "127.0.0.1", "--root-dir", str(folder)]
    command = [str(find_java()), *JVM_OPTIONS, "-jar", str(JAR), *options, "--container-threads", str(THREADS)]
    log = folder / "wiremock.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def poll() -> Observation[str]:
        text = log.read_text(encoding="utf-8")
        assert process.poll() is None, text
        found = PORT.search(text)
        return Observation(f"http://127.0.0.1:{found[1]}" if found else None, text)

    try:
        yield wait_for("WireMock", poll, seconds=SECONDS)
    finally:
        process.kill()  # the server has nothing to save
        process.wait(SECONDS)
