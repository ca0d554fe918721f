"""Keep the latest states of a cell's topic in a receiver process, and compare them with the ledger."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from threading import Event as Flag

from outbox_events import LatestState
from outbox_events.errors import OutboxError
from outbox_events.receiving.event import Event
from outbox_lab.drill.ledger import Ledger
from outbox_lab.drill.observer import version_of

logger = logging.getLogger(__name__)

LOAD_S = 60
POLL_S = 0.5
SNAPSHOT_INTERVAL_S = 1.0
SHOWN_DIFFERENCES = 5


def versions_file(folder: Path, number: int) -> Path:
    """Return the file to which a member writes the versions of the states when it is stopped."""
    return folder / f"latest-states-{number}.json"


def follow(kafka: str, topic: str, folder: Path, number: int, stop: Flag) -> None:
    """Follow the topic, with a snapshot that survives kills, until the stop flag is set. Then write the versions."""
    snapshot = folder / f"latest-states-{number}.snapshot"
    try:
        with LatestState(
            {"bootstrap.servers": kafka},
            topic,
            decode=_version,
            snapshot=snapshot,
            snapshot_interval_s=SNAPSHOT_INTERVAL_S,
        ) as states:
            states.follow()
            while not stop.wait(POLL_S):
                pass
            states.stop()
            states.load(seconds=LOAD_S)
            versions_file(folder, number).write_text(json.dumps(dict(states.items())))
    except OutboxError:  # the missing file shows the failure
        logger.exception("the latest states ended")


def _version(event: Event) -> int | None:
    return version_of(event.raw_value)


def differences(ledger: Ledger, folder: Path, number: int) -> list[str]:
    """Return the differences between the latest states of a stopped member and the newest committed events."""
    path = versions_file(folder, number)
    if not path.exists():
        return [f"member {number} wrote no latest states"]
    actual = json.loads(path.read_text())
    expected = {event.account: event.version for event in ledger.newest().values() if not event.is_tombstone}
    found = [
        f"{account}: the latest state has version {actual.get(account)}, the ledger {expected.get(account)}"
        for account in sorted(actual.keys() | expected.keys())
        if actual.get(account) != expected.get(account)
    ]
    return found[:SHOWN_DIFFERENCES]
