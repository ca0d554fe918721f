"""Rows of one aggregate, and proofs of their delivery."""

from __future__ import annotations

from dataclasses import replace

from outbox_events.contract.source_sequence import Version, WalPosition
from outbox_kit.delivery.outbox_rows import StoredRow
from outbox_kit.delivery.proof import Proof
from outbox_kit.kafka.latest_records import LatestRecord

SNAPSHOT, END = 100, 200
NO_PROOF = Proof({}, set(), set(), {}, WalPosition(1, SNAPSHOT), WalPosition(1, END))
# The latest transaction inserted the last row.
ROWS = [
    StoredRow(id=f"event-{number}", aggregate_type="book", key="k", xid=str(number), age=9 - number, table_oid=number,
              is_old=True)
    for number in range(3)
]  # fmt: skip


def dead_letters(*event_ids: str) -> dict[str, Version]:
    return dict.fromkeys(event_ids, Version(""))


def record(event_id: str = "other", lsn: int = 1, *, epoch: int = 1, has_state: bool = True) -> LatestRecord:
    """Return the newest record of the key."""
    return LatestRecord(Version(f"{epoch:04x}_{0:016x}-{lsn:016x}"), event_id, "", has_state)


def proof(*delivered: str, newest: LatestRecord | None = None) -> Proof:
    """Return the proof of a topic with records of these events."""
    return replace(NO_PROOF, latest={"k": newest or record()}, event_ids=set(delivered))
