"""Fixtures of the tests: the stack in containers, and the running service."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from outbox_kit.testing import OutboxStack

pytest_plugins = ["outbox_kit.testing.fixtures"]
PROJECT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def service_url(outbox_stack: OutboxStack) -> Iterator[str]:
    """Deploy the pipeline and run the service as a process; yield the address of its API."""
    outbox_stack.apply(PROJECT / "connectors" / "books.yaml")
    command = [sys.executable, "-m", "book_management"]
    environment = {**os.environ, "DATABASE_URL": outbox_stack.source_dsn, "PORT": "0"}
    subprocess.run([*command, "migrate"], cwd=PROJECT, env=environment, timeout=60, check=True)
    with subprocess.Popen(command, cwd=PROJECT, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        yield process.stderr.readline().split()[-1]  # "listening on URL"
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        assert process.returncode == 0
