"""Process that receives events and ends in the middle of a transaction without any cleanup."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from confluent_kafka import KafkaException
from tests.integration.receiving.matrix.entries import ENTRIES, Setup
from tests.integration.receiving.matrix.members import SECONDS, make_receiver

from outbox_events import Event

CRASHED = 9
ROOT = Path(__file__).resolve().parents[4]


def crash(setup: Setup, strategy: str, step: str, event_id: str) -> None:
    """Start a receiver that crashes at a step ("before_commit" or "after_commit") of the event's transaction."""
    values = json.dumps({"setup": asdict(setup), "strategy": strategy, "step": step, "event_id": event_id})
    ended = subprocess.run(
        [sys.executable, "-m", __name__, values],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=2 * SECONDS,
        check=False,
    )
    assert ended.returncode == CRASHED, ended.stderr


def receive(setup: Setup, strategy: str, step: str, event_id: str) -> None:
    """Receive events up to the crash. The offsets before the event are committed, so that the crash affects only it."""

    def end(events: Sequence[Event]) -> None:
        if event_id in {event.event_id for event in events}:
            with suppress(KafkaException):  # the strategy does not store offsets
                receiver.consumer.commit(asynchronous=False)
            os._exit(CRASHED)

    (entry,) = (entry for entry in ENTRIES if entry.name == strategy)
    receiver, _ = make_receiver(setup, entry, **{step: end})
    started = time.monotonic()
    while time.monotonic() - started < SECONDS:
        receiver.poll(0.1)


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    receive(Setup(**arguments.pop("setup")), **arguments)
