"""The connector as rendered against the connector as Connect has it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.connect.samples import COMMITTED, DESIRED, MOVED, NULL, PLUGIN, ROUTER, RUNNING, SEEDED, STOPPED

from outbox_kit.changes import Change
from outbox_kit.connect.client import ConnectorStatus
from outbox_kit.connect.state import (
    EPOCH_KEY,
    ActualConnector,
    diff,
    different_keys,
    missing_plugins,
    never_ran,
    refuse_epoch,
    refuse_position,
    seed_offset,
)
from outbox_kit.errors import RECOVER, RefusedError
from outbox_kit.pipeline import UNKNOWN, Lock


@pytest.mark.parametrize(
    ("desired", "actual", "different"),
    [
        ({}, {}, []),
        ({"a": "1"}, {"a": "1"}, []),
        ({"a": "1"}, {"a": "2"}, ["a"]),
        ({"a": "1"}, {}, ["a"]),
        ({}, {"a": "1"}, ["a"]),
        ({"b": "1", "a": "1"}, {"c": "1"}, ["a", "b", "c"]),
        # the worker adds the name
        ({"a": "1"}, {"a": "1", "name": "library-outbox"}, []),
        ({"a": "1", "name": "x"}, {"a": "1", "name": "y"}, []),
        # what some distributions answer instead of a password
        ({"database.password": "${env:X}"}, {"database.password": "****"}, []),
        ({"database.password": "${env:X}"}, {"database.password": "••••••••"}, []),
        ({"database.password": "${env:X}"}, {"database.password": "[hidden]"}, []),
        ({"database.password": "${env:X}"}, {"database.password": "*"}, []),
        ({}, {"database.password": "****"}, ["database.password"]),
        ({"a": "${env:X}"}, {"a": "** not a mask"}, ["a"]),
        ({"a": "1"}, {"a": ""}, ["a"]),
        # what is not known before apply
        ({"id": UNKNOWN}, {"id": "12"}, []),
        ({"id": UNKNOWN}, {}, []),
        ({"id": "13"}, {"id": "12"}, ["id"]),
    ],
)
def test_different_keys(desired: dict[str, str], actual: dict[str, str], different: list[str]) -> None:
    assert different_keys(desired, actual) == different


@pytest.mark.parametrize(
    ("status", "offsets", "expected"),
    [
        (STOPPED, [], True),
        (STOPPED, SEEDED, True),
        # of another slot position than today's: the slot moves on while the connector waits
        (STOPPED, [{"partition": {"server": "library"}, "offset": seed_offset("16/B374D848")}], True),
        (STOPPED, NULL, True),
        (STOPPED, MOVED, False),
        (STOPPED, COMMITTED, False),
        (STOPPED, [{"partition": {}, "offset": {"lsn": 5}}], False),
        (STOPPED, [{"partition": {}, "offset": {}}], False),
        (STOPPED, [{"partition": {}, "offset": {"lsn": 5, "lsn_proc": 5, "other": 5}}], False),
        (STOPPED, [*SEEDED, *MOVED], False),
        (STOPPED, [*SEEDED, *COMMITTED], False),
        (RUNNING, [], False),
        (RUNNING, SEEDED, False),
        (ConnectorStatus("PAUSED", ("PAUSED",), ()), [], False),
        (ConnectorStatus("PAUSED", ("PAUSED",), ()), SEEDED, False),
        (ConnectorStatus("FAILED", (), ()), SEEDED, False),
        (ConnectorStatus("UNASSIGNED", (), ()), [], False),
        (None, [], False),
        (None, SEEDED, False),
    ],
)
def test_never_ran(status: ConnectorStatus | None, offsets: list[dict[str, Any]], expected: bool) -> None:
    assert never_ran(ActualConnector({}, status, offsets)) is expected


@pytest.mark.parametrize(
    ("text", "lsn"),
    [
        ("0/0", 0),
        ("0/1", 1),
        ("1/0", 2**32),
        ("16/B374D848", 0x16B374D848),
        ("FFFFFFFF/FFFFFFFF", 2**64 - 1),
        ("0/16b3748", 0x16B3748),
    ],
)
def test_seed_offset(text: str, lsn: int) -> None:
    assert seed_offset(text) == {"lsn": lsn, "lsn_proc": lsn, "lsn_commit": lsn}


def test_diff_creates_what_is_not_there() -> None:
    assert diff("c", DESIRED, ActualConnector(None, None, [])) == [
        Change("connect", "connector c", "create", "reads the slot, writes the topics")
    ]


@pytest.mark.parametrize(
    ("config", "status", "offsets", "expected"),
    [
        (DESIRED, RUNNING, MOVED, []),
        ({**DESIRED, "name": "c"}, STOPPED, MOVED, []),
        (
            {**DESIRED, "max.batch.size": "1"},
            RUNNING,
            MOVED,
            [("connector c", "update", "changed: max.batch.size")],
        ),
        (DESIRED, STOPPED, [], [("start c", "create", "")]),
        (DESIRED, STOPPED, SEEDED, [("start c", "create", "")]),
        (DESIRED, STOPPED, COMMITTED, []),
        (
            {**DESIRED, "a": "1"},
            ConnectorStatus("PAUSED", ("PAUSED",), ()),
            SEEDED,
            [("connector c", "update", "changed: a")],
        ),
        (
            {**DESIRED, "a": "1", "b": "2"},
            STOPPED,
            SEEDED,
            [("connector c", "update", "changed: a, b"), ("start c", "create", "")],
        ),
        (DESIRED, None, [], []),
    ],
    ids=[
        "same",
        "stopped later",
        "changed",
        "interrupted",
        "interrupted after the seed",
        "stopped after some events",
        "paused, changed",
        "interrupted and changed",
        "no status yet",
    ],
)
def test_diff(
    config: dict[str, str],
    status: ConnectorStatus | None,
    offsets: list[dict[str, Any]],
    expected: list[tuple[str, str, str]],
) -> None:
    changes = diff("c", DESIRED, ActualConnector(config, status, offsets))
    assert [(change.object, change.action, change.after) for change in changes] == expected


def test_changes_name_keys_never_values() -> None:
    actual = ActualConnector({**DESIRED, "database.password": "hunter2"}, RUNNING, MOVED)
    changes = diff("c", {**DESIRED, "database.password": "s3cret"}, actual)
    assert "database.password" in changes[0].after
    assert "hunter2" not in repr(changes)
    assert "s3cret" not in repr(changes)


@pytest.mark.parametrize(
    ("installed", "missing"),
    [
        ([PLUGIN, ROUTER, "other"], []),
        ([PLUGIN], [ROUTER]),
        ([], [PLUGIN, ROUTER]),
    ],
)
def test_missing_plugins(installed: list[str], missing: list[str]) -> None:
    assert missing_plugins(DESIRED, installed) == missing


def test_every_transform_of_a_chain_must_be_installed() -> None:
    chain = {"connector.class": PLUGIN, "transforms.a.type": "A", "transforms.b.type": "B$Value"}
    assert missing_plugins({**chain, "transforms.a.type.name": "x"}, [PLUGIN]) == ["A", "B$Value"]


@pytest.mark.parametrize(
    ("key", "named"),
    [
        ("connector.class", True),
        ("key.converter", True),
        ("value.converter", True),
        ("header.converter", True),
        ("transforms.a-b.type", True),
        ("value.converter.delegate.converter.type", False),
        ("value.converter.schemas.enable", False),
        ("internal.key.converter", False),
        ("transforms.outbox.source.type", False),
        ("transforms", False),
        ("database.type", False),
    ],
)
def test_which_keys_name_a_class(key: str, named: bool) -> None:
    """A converter that is not there fails the task only after the connector was made."""
    assert missing_plugins({key: "x.Y"}, ["other"]) == (["x.Y"] if named else [])
    assert missing_plugins({key: "x.Y"}, ["x.Y"]) == []


def test_a_class_that_several_keys_name_is_missing_once() -> None:
    config = {"key.converter": "S", "header.converter": "S", "value.converter": "B"}
    assert missing_plugins(config, []) == ["B", "S"]


# --- refuse_position


def offset(**position: object) -> list[dict[str, Any]]:
    return [{"partition": {"server": "library"}, "offset": position}]


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
def test_a_position_that_the_server_has_reached_passes(
    lock: Lock, offsets: list[dict[str, Any]], wal_position: int
) -> None:
    refuse_position("c", ActualConnector(DESIRED, RUNNING, offsets), lock, wal_position)


@pytest.mark.parametrize(
    ("offsets", "ahead"),
    [(offset(lsn=6), 6), (offset(lsn=5) + offset(lsn=2**50), 2**50), (NULL + offset(lsn=7), 7)],
)
def test_a_position_ahead_of_the_server_is_refused(lock: Lock, offsets: list[dict[str, Any]], ahead: int) -> None:
    with pytest.raises(RefusedError) as caught:
        refuse_position("c", ActualConnector(DESIRED, RUNNING, offsets), lock, 5)
    assert caught.value.message.startswith(f"connector 'c' stands at {ahead}, the server only at 5: ")
    assert caught.value.hint == RECOVER


@pytest.mark.parametrize("status", [RUNNING, STOPPED, ConnectorStatus("PAUSED", ("PAUSED",), ()), None])
def test_a_position_ahead_is_refused_in_every_state(lock: Lock, status: ConnectorStatus | None) -> None:
    """Somebody will resume it."""
    with pytest.raises(RefusedError, match="stands at 9"):
        refuse_position("c", ActualConnector(DESIRED, status, offset(lsn=9)), lock, 8)


@pytest.mark.parametrize("has_lock", [False, True], ids=["no lock", "a lock without source"])
def test_a_position_of_a_slot_that_nobody_knows_is_refused(lock: Lock, has_lock: bool) -> None:
    found = lock.model_copy(update={"source": None}) if has_lock else None
    with pytest.raises(RefusedError) as caught:
        refuse_position("c", ActualConnector(DESIRED, RUNNING, offset(lsn=5)), found, 9)
    assert caught.value.message == "connector 'c' has a position, but the lock file does not know its slot"
    assert caught.value.hint.startswith("restore the lock file from version control")
    assert RECOVER in caught.value.hint


@pytest.mark.parametrize(
    "actual",
    [
        ActualConnector(None, None, []),
        ActualConnector(DESIRED, STOPPED, []),
        ActualConnector(DESIRED, STOPPED, NULL),
        ActualConnector({**DESIRED, EPOCH_KEY: "1"}, STOPPED, []),
    ],
    ids=["no connector", "no offset", "no offset any more", "first epoch"],
)
def test_without_a_position_no_lock_is_needed(actual: ActualConnector) -> None:
    refuse_position("c", actual, None, 9)


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
def test_a_live_epoch_above_the_locks_is_refused(
    lock: Lock, live: str | None, locked: int | None, refused: bool
) -> None:
    config = {**DESIRED, EPOCH_KEY: live} if live else DESIRED
    found = lock.model_copy(update={"source_epoch": locked}) if locked else None
    actual = ActualConnector(config, STOPPED, [])
    if not refused:
        refuse_epoch("c", actual, found, raised=False)
        return
    with pytest.raises(RefusedError) as caught:
        refuse_epoch("c", actual, found, raised=False)
    assert caught.value.message.startswith(f"connector 'c' writes source epoch {live}, the lock file is behind it")
    assert caught.value.hint == "restore the lock file from version control"


def test_a_raised_epoch_must_be_above_the_live_one(lock: Lock) -> None:
    """A lock file that is one behind would raise the epoch to what is written already."""
    actual = ActualConnector({**DESIRED, EPOCH_KEY: "3"}, STOPPED, [])
    refuse_epoch("c", actual, lock.model_copy(update={"source_epoch": 4}), raised=True)
    with pytest.raises(RefusedError, match="writes source epoch 3"):
        refuse_epoch("c", actual, lock.model_copy(update={"source_epoch": 3}), raised=True)


@pytest.mark.parametrize(
    ("status", "unfinished", "planned"),
    [
        (STOPPED, None, []),
        (STOPPED, "update", ["start c"]),
        (RUNNING, "update", []),
        (STOPPED, "recover", ["offsets c", "start c"]),
        (RUNNING, "recover", ["offsets c", "start c"]),
    ],
)
def test_what_an_interrupted_apply_began_is_finished(
    status: ConnectorStatus, unfinished: str | None, planned: list[str]
) -> None:
    """A connector that somebody stopped stays stopped; one that an apply stopped is started again."""
    own = [{"partition": {"server": "library"}, "offset": {"lsn": 9, "txId": 1}}]
    changes = diff("c", DESIRED, ActualConnector(DESIRED, status, own), unfinished)
    assert [change.object for change in changes] == planned
