"""A pipeline without a connector, and relay processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import psycopg
import pytest
from tests.integration.conftest import deployer

from outbox_events.waiting import Observation, wait_for
from outbox_kit.deployment import Deployment, apply
from outbox_kit.relay import RelayOptions, run_relay
from outbox_kit.relay.metrics import Counters
from outbox_kit.results import silent
from outbox_kit.results.changes import System
from outbox_kit.stack import Stack

PROCESS_SECONDS = 30
# The lease of a stopped process ends earlier than in production, so that tests do not have to wait long.
MAIN = "from outbox_kit.relay import leases; leases.LEASE_S = 3; from outbox_kit.cli import main; main()"
# The first transaction stops the process when the broker has the records, between the last check of the lease and the
# commit. The signal is sent to the thread, because another thread that receives it stops this thread only later, when
# this thread may have committed.
STOP_BEFORE_COMMIT = """
import signal, threading
from outbox_kit.relay.producer import BucketProducer
wait, unstopped = BucketProducer._wait, [True]
def wait_stopped(self, action, step):
    def stopping_step(seconds):
        if action == "commit" and unstopped:
            unstopped.clear()
            self._producer.flush(30)
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        step(seconds)
    wait(self, action, stopping_step)
BucketProducer._wait = wait_stopped
"""
# The process stops in its first commit, and this call never returns.
HANG_IN_COMMIT = """
import signal, threading
from outbox_kit.relay import run
from outbox_kit.relay.producer import BucketProducer
run.STOP_S = 1
def hang(self):
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
    threading.Event().wait()
BucketProducer.commit = hang
"""
WITHOUT_CONNECT: dict[str, tuple[System, ...]] = {"only": ("kafka", "registry")}
"""Options of `apply` for a pipeline without a connector."""


@dataclass
class RelayProcess:
    """A running `outbox relay`."""

    process: subprocess.Popen[str]

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        return self.process.wait(timeout=PROCESS_SECONDS)

    def wait_stopped(self) -> None:
        """Wait until the process is stopped by SIGSTOP."""
        status = Path(f"/proc/{self.process.pid}/stat")

        def poll() -> Observation[bool]:
            state = status.read_text().rpartition(") ")[2][0]
            return Observation(True if state == "T" else None, f"state {state}")

        wait_for("the process to stop", poll, seconds=PROCESS_SECONDS)


@pytest.fixture(scope="package")
def relayed(make_pipeline: Callable[..., Path], stack: Stack) -> Iterator[Deployment]:
    """Yield a pipeline that has never had a connector, for all tests of the relay. Each test leaves the table empty."""
    del stack  # must be running
    with deployer(make_pipeline) as run:
        deployment = run("relayed", applied=False)
        apply(deployment, silent, **WITHOUT_CONNECT)
        relay_once(deployment)  # creates the outbox table
        yield deployment


@pytest.fixture
def relay_process(project: Path) -> Iterator[Callable[..., RelayProcess]]:
    """Start relay processes, which are ended after the test."""
    started: list[RelayProcess] = []

    def start(deployment: Deployment, *arguments: str, main: str = MAIN) -> RelayProcess:
        pipeline = project / "connectors" / f"{deployment.pipeline.name}.yaml"
        command = [sys.executable, "-c", main, "relay", "-p", str(pipeline)]
        process = subprocess.Popen(
            [*command, "-e", "local", *arguments],
            cwd=project,
            env=os.environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        started.append(RelayProcess(process))
        return started[-1]

    yield start
    for entry in started:
        if entry.process.poll() is None:
            entry.signal(signal.SIGCONT)
            entry.process.kill()
            entry.wait()


def relay_once(deployment: Deployment, **options: object) -> Counters:
    """Send all rows in this process."""
    return run_relay(deployment, RelayOptions(once=True, **options), Event(), silent)  # type: ignore[arg-type]


def wait_empty(dsn: str, table: str) -> None:
    """Wait until the relay has deleted every row."""
    with psycopg.connect(dsn, autocommit=True) as connection:

        def poll() -> Observation[bool]:
            count = connection.execute(f"select count(*) from {table}").fetchall()[0][0]
            return Observation(True if count == 0 else None, f"{count} rows")

        wait_for(f"table {table} to be empty", poll, seconds=60)
