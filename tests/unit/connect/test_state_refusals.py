"""Offsets and source epochs that are not consistent with the lock file or the server."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.connect_samples import DESIRED, NULL, RUNNING, STOPPED

from outbox_events.errors import RefusedError
from outbox_kit.connect.client import ConnectorStatus
from outbox_kit.connect.state import (
    EPOCH_KEY,
    ActualConnector,
    refuse_advanced_slot,
    refuse_inconsistent_offset,
    refuse_lower_epoch,
    stored_lsn,
)
from outbox_kit.pipeline import Lock
from outbox_kit.results.repair_commands import APPLY_RECOVER_HINT, RECOVER_HINT

# --- refuse_inconsistent_offset


def offset(**values: object) -> list[dict[str, Any]]:
    return [{"partition": {"server": "library"}, "offset": values}]


@pytest.mark.parametrize(
    ("offsets", "wal_position"),
    [
        ([], 0),
        (NULL, 0),
        (offset(lsn=None), 0),
        (offset(other=99), 0),
        (offset(lsn=5), 5),
        (offset(lsn=5), 6),
    ],
)
def test_accepts_an_offset_that_the_server_has_reached(
    lock: Lock, offsets: list[dict[str, Any]], wal_position: int
) -> None:
    refuse_inconsistent_offset("c", ActualConnector(DESIRED, RUNNING, offsets), lock, wal_position)


@pytest.mark.parametrize(
    ("offsets", "ahead"),
    [(offset(lsn=6), 6), (offset(lsn=5) + offset(lsn=2**50), 2**50), (NULL + offset(lsn=7), 7)],
)
def test_rejects_an_offset_ahead_of_the_server(lock: Lock, offsets: list[dict[str, Any]], ahead: int) -> None:
    with pytest.raises(RefusedError) as caught:
        refuse_inconsistent_offset("c", ActualConnector(DESIRED, RUNNING, offsets), lock, 5)
    assert caught.value.message.startswith(f"the offset of connector 'c' is at LSN {ahead}, but the server is")
    assert caught.value.hint == RECOVER_HINT


def test_accepts_a_slot_at_the_last_commit_of_concurrent_transactions() -> None:
    """The LSN of the event is lower than the commit LSN that was confirmed before."""
    actual = ActualConnector(DESIRED, RUNNING, offset(lsn=1000, lsn_proc=1000, lsn_commit=1608))
    refuse_advanced_slot("c", "s", stored_lsn(actual), 1608)
    with pytest.raises(RefusedError, match=r"slot 's' is at .*1609"):
        refuse_advanced_slot("c", "s", stored_lsn(actual), 1609)


def test_ignores_an_offset_of_an_earlier_prefix(lock: Lock) -> None:
    offsets = [{"partition": {"server": "before"}, "offset": {"lsn": 9}}, *offset(lsn=5)]
    assert stored_lsn(ActualConnector({**DESIRED, "topic.prefix": "library"}, RUNNING, offsets)) == 5
    assert stored_lsn(ActualConnector({**DESIRED, "topic.prefix": "new"}, RUNNING, offsets)) == 0
    refuse_inconsistent_offset("c", ActualConnector({**DESIRED, "topic.prefix": "library"}, RUNNING, offsets), lock, 5)


@pytest.mark.parametrize("status", [RUNNING, STOPPED, ConnectorStatus("PAUSED", ("PAUSED",), ()), None])
def test_rejects_an_offset_ahead_in_every_state(lock: Lock, status: ConnectorStatus | None) -> None:
    """A paused or stopped connector may be resumed later."""
    with pytest.raises(RefusedError, match="offset of connector 'c' is at LSN 9"):
        refuse_inconsistent_offset("c", ActualConnector(DESIRED, status, offset(lsn=9)), lock, 8)


@pytest.mark.parametrize("has_lock", [False, True], ids=["no lock", "a lock without source"])
def test_rejects_an_offset_of_an_unknown_slot(lock: Lock, has_lock: bool) -> None:
    actual = lock.model_copy(update={"source": None}) if has_lock else None
    with pytest.raises(RefusedError) as caught:
        refuse_inconsistent_offset("c", ActualConnector(DESIRED, RUNNING, offset(lsn=5)), actual, 9)
    assert caught.value.message == "connector 'c' has an offset, but the lock file does not contain its slot"
    assert caught.value.hint.startswith("restore the lock file from version control")
    assert APPLY_RECOVER_HINT in caught.value.hint


@pytest.mark.parametrize(
    "actual",
    [
        ActualConnector(None, None, []),
        ActualConnector(DESIRED, STOPPED, []),
        ActualConnector(DESIRED, STOPPED, NULL),
        ActualConnector({**DESIRED, EPOCH_KEY: "1"}, STOPPED, []),
    ],
    ids=["no connector", "no offset", "offset deleted", "first epoch"],
)
def test_requires_no_lock_file_without_an_offset(actual: ActualConnector) -> None:
    refuse_inconsistent_offset("c", actual, None, 9)


@pytest.mark.parametrize(
    ("live", "locked", "refused"),
    [
        ("1", 1, False),
        ("1", 2, False),
        ("2", 2, False),
        ("3", 2, True),
        ("10", 9, True),
        ("1", None, False),
        ("2", None, True),
        (None, 1, False),
    ],
)
def test_rejects_an_epoch_above_the_lock_file(lock: Lock, live: str | None, locked: int | None, refused: bool) -> None:
    config = {**DESIRED, EPOCH_KEY: live} if live else DESIRED
    result = lock.model_copy(update={"source_epoch": locked}) if locked else None
    actual = ActualConnector(config, STOPPED, [])
    if not refused:
        refuse_lower_epoch("c", actual, result, increased=False)
        return
    with pytest.raises(RefusedError) as caught:
        refuse_lower_epoch("c", actual, result, increased=False)
    assert caught.value.message.startswith(f"connector 'c' writes source epoch {live}, but would get source epoch")
    assert caught.value.hint.startswith("restore the lock file from version control")
    assert "`outbox apply --recover`" in caught.value.hint


def test_rejects_a_new_epoch_not_above_the_actual_one(lock: Lock) -> None:
    """An outdated lock file would increase the epoch to one that is already in use."""
    actual = ActualConnector({**DESIRED, EPOCH_KEY: "3"}, STOPPED, [])
    refuse_lower_epoch("c", actual, lock.model_copy(update={"source_epoch": 4}), increased=True)
    with pytest.raises(RefusedError, match="writes source epoch 3"):
        refuse_lower_epoch("c", actual, lock.model_copy(update={"source_epoch": 3}), increased=True)
